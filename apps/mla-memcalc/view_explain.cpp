// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "mla/error.hpp"
#include "plan/explain.hpp"
#include "spec/text_file.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::Explained;
using capacity::LogKind;
using capacity::LogReading;

/// The model the user names, else the one the log names.
std::optional<ModelConfig> model_of(const Options& options, const LogReading& log) {
  if (!options.request.model.empty()) return load_model(options.request.model);
  for (const std::string& name : capacity::model_names(log.model)) {
    try {
      return load_model(name);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
    }
  }
  return std::nullopt;
}

std::string value_text(const capacity::LogNumber& number, double value) {
  constexpr double kMiB = 1024.0 * 1024.0;
  if (number.kind == LogKind::kConcurrency) return fmt::format("{:.2f}x", value);
  if (number.unit == 1) return report::with_thousands(static_cast<std::int64_t>(std::floor(value)));
  return fmt::format("{:.2f} {}", value, number.unit > kMiB ? "GiB" : "MiB");
}

std::string planned_text(const Explained& one) {
  if (!one.planned) return {};
  const std::string low = value_text(one.logged, one.low);
  const std::string high = value_text(one.logged, one.high);
  return low == high ? low : low + ".." + high;
}

/// How far the logged number is from what is planned, in parts of what is planned.
std::string apart_text(const Explained& one) {
  const double nearest = one.logged.value < one.low ? one.low : one.high;
  if (!(nearest > 0)) return "not planned";
  const double apart = 100 * (one.logged.value / nearest - 1);
  return fmt::format("{:.2f} % {} planned", std::abs(apart), apart < 0 ? "below" : "above");
}

report::Table numbers_table(const std::vector<Explained>& numbers) {
  report::Table table{.name = "numbers", .title = "Numbers of the log", .columns = {}, .rows = {}};
  table.columns = {{.key = "line", .title = "line"},       {.key = "rank", .title = "rank"},
                   {.key = "what", .title = "what"},       {.key = "logged", .title = "logged"},
                   {.key = "planned", .title = "planned"}, {.key = "verdict", .title = "verdict"},
                   {.key = "how", .title = "from"}};
  for (const Explained& one : numbers) {
    const std::string verdict = !one.planned ? "given" : one.matches ? "matches" : apart_text(one);
    table.rows.push_back({std::int64_t{one.logged.line}, one.logged.rank,
                          std::string(name_of(one.logged.kind)), value_text(one.logged, one.logged.value),
                          planned_text(one), verdict, one.how});
  }
  return table;
}

/// What the user says of the run counts more than what the log says.
void override_log(LogReading& log, const Options& options) {
  const RequestOptions& asked = options.request;
  const auto size = [](int& slot, const std::string& text, const char* flag) {
    if (!text.empty()) slot = rank_count(text, flag);
  };
  size(log.tp, asked.tp, "--tp");
  size(log.dp, asked.dp, "--dp");
  size(log.pp, asked.pp, "--pp");
  size(log.dcp, asked.dcp, "--dcp");
  size(log.block, asked.block, "--block");
  if (!options.log_cache.empty()) log.cache_dtype = capacity::find_kv_format(options.log_cache).name;
  if (options.log_engine.empty()) return;
  const std::string name(capacity::find_engine(options.log_engine).name);
  const std::size_t version = options.log_engine.find('@');
  if (version != std::string::npos) {
    log.version = options.log_engine.substr(version + 1);
  } else if (name != log.engine) {
    log.version.clear();
  }
  log.engine = name;
}

std::string source_text(const LogReading& log, const ModelConfig& model) {
  std::string text = fmt::format("A log of {}{}{}", log.engine.empty() ? "an engine" : log.engine,
                                 log.version.empty() ? "" : " ", log.version);
  text += fmt::format(" with {}", model.title);
  for (const auto& [name, size] :
       {std::pair{"tp", log.tp}, {"pp", log.pp}, {"dp", log.dp}, {"dcp", log.dcp}}) {
    if (size > 0) text += fmt::format(", {} {}", name, size);
  }
  if (!log.cache_dtype.empty()) text += fmt::format(", cache dtype {}", log.cache_dtype);
  return text;
}

/// A format given by hand that the log's engine has not for this model: nothing could come of it.
void check_format(const LogReading& log, const Options& options, const ModelConfig& model) {
  if (options.log_cache.empty()) return;
  capacity::validate(capacity::find_kv_format(options.log_cache), model,
                     capacity::find_engine(log.engine.empty() ? "vllm" : log.engine));
}

/// "Line 3 is not readable", for lines in which something else stands in place of a number.
void say_unreadable(report::Document& document, const LogReading& log) {
  constexpr std::size_t kMostLines = 5;
  for (std::size_t i = 0; i < std::min(kMostLines, log.unreadable.size()); ++i)
    document.headline.push_back(
        fmt::format("Line {} is not readable: its number was left out.", log.unreadable[i]));
}

}  // namespace

Answer explain_answer(const Options& options) {
  const std::string text = options.log == "-" ? cli::read_stdin() : spec::read_text_file(options.log);
  LogReading log = capacity::read_log(text);
  override_log(log, options);
  Answer answer;
  report::Document& document = answer.document;
  document.kind = "memcalc.explain";
  if (log.empty()) {
    answer.fits = false;
    document.headline.push_back(
        "Nothing found: no line with memory, tokens, blocks or concurrency of vLLM, SGLang, TensorRT-LLM or "
        "llama.cpp.");
    say_unreadable(document, log);
    return answer;
  }
  const std::optional<ModelConfig> model = model_of(options, log);
  if (!model) {
    throw Error(ErrorCode::kInvalidArgument,
                log.model.empty()
                    ? std::string("the log names no model")
                    : fmt::format("the log's model '{}' is not among the known ones", log.model),
                "name it with --model, for example --model deepseek-v3 or --model ./config.json");
  }
  check_format(log, options, *model);
  const capacity::Explanation explanation = capacity::explain(log, *model);
  const bool explained = explanation.explained && log.unreadable.empty();
  answer.fits = explained;
  document.headline.push_back(source_text(log, *model) + ".");
  for (std::string sentence : explanation.sentences) {
    if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z')
      sentence[0] = static_cast<char>(sentence[0] - 32);
    document.headline.push_back(sentence + ".");
  }
  say_unreadable(document, log);
  document.facts = {{"engine", log.engine},
                    {"model", model->name},
                    {"explained", explained},
                    {"hypothesis", explanation.hypothesis}};
  document.tables.push_back(numbers_table(explanation.numbers));
  constexpr std::size_t kOthersShown = 3;
  for (std::size_t i = 0; i < std::min(kOthersShown, explanation.others.size()); ++i) {
    document.notes.push_back("explains as much: " + explanation.others[i]);
  }
  return answer;
}

}  // namespace mla::memcalc
