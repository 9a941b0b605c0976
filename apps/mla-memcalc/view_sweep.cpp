// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "figures.hpp"
#include "mla/error.hpp"
#include "plan/layout_text.hpp"
#include "plan/plan_warnings.hpp"
#include "plan/refused_cuts.hpp"
#include "plan/search.hpp"
#include "spec/values.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::MemoryPlan;
using report::Cell;

constexpr std::size_t kMostPoints = 100'000;
constexpr std::size_t kFitsColumn = 6;
constexpr std::size_t kBeyondColumn = 17;

report::Table empty_table() {
  report::Table table{
      .name = "plans", .title = "Plans: GiB and bytes are those of one GPU", .columns = {}, .rows = {}};
  table.columns = {
      {.key = "model", .title = "model", .whole = true},
      {.key = "gpu", .title = "GPU"},
      {.key = "gpus", .title = "GPUs"},
      {.key = "layout", .title = "layout", .whole = true},
      {.key = "cache_format", .title = "cache"},
      {.key = "context", .title = "context", .thousands = true},
      {.key = "fits", .title = "fits"},
      {.key = "sequences", .title = "sequences", .thousands = true},
      {.key = "sequences_per_replica", .title = "a replica", .thousands = true},
      {.key = "replicas", .title = "replicas"},
      {.key = "at_once", .title = "at once", .thousands = true},
      {.key = "tokens", .title = "tokens", .thousands = true},
      {.key = "longest_context", .title = "longest", .thousands = true},
      {.key = "bytes_per_token_per_gpu", .title = "B a token", .precision = 1, .thousands = true},
      {.key = "weights_gib_per_gpu", .title = "weights GiB"},
      {.key = "cache_gib_per_gpu", .title = "cache GiB"},
      {.key = "limited_by", .title = "limited by"},
      {.key = "beyond_model_maximum", .title = "beyond maximum"},
      {.key = "why_not", .title = "why not"}};
  return table;
}

bool beyond(const Question& question) {
  return question.model.max_position > 0 && question.request.context > question.model.max_position;
}

void add_plan(report::Table& table, const Question& question, const MemoryPlan& plan) {
  const capacity::StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
  table.rows.push_back(
      {question.model.name, question.request.gpu_name, plan.layout.gpus(), to_text(plan.layout),
       std::string(question.request.cache.name), plan.context, plan.fits, plan.sequences,
       plan.sequences_per_replica, plan.replicas, plan.at_once, plan.sequences * plan.context,
       plan.longest_context, bytes_cell(plan.cache_bytes_per_token),
       to_gib(static_cast<double>(stage.weight_bytes)), to_gib(static_cast<double>(stage.cache_budget)),
       std::string(name_of(plan.binding)), beyond(question), Cell()});
}

/// A point that cannot be is a row too, with the rule that forbids it.
void add_refusal(report::Table& table, const Question& question, const std::string& layout,
                 const std::string& why) {
  std::vector<Cell> row(table.columns.size());
  row[0] = question.model.name;
  row[1] = question.request.gpu_name;
  row[2] = std::int64_t{question.gpus};
  row[3] = layout;
  row[4] = std::string(question.request.cache.name);
  row[5] = question.request.context;
  row[kFitsColumn] = false;
  row[kBeyondColumn] = beyond(question);
  row.back() = why;
  table.rows.push_back(std::move(row));
}

/// The layouts of one setting: by name, all of them, or the one that holds most.
class Layouts {
 public:
  /// Without `counted` a layout that is named says how many GPUs there are.
  Layouts(const std::string& text, bool counted) : text_(text), counted_(counted) {
    if (text == "auto" || text == "all") return;
    for (const std::string& word : spec::parse_words(text, "--layout")) {
      if (word == "auto" || word == "all") {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("--layout {} stands alone, not in a list", word));
      }
      named_.emplace_back(word, capacity::parse_layout(word));
    }
  }

  /// Appends rows, and to `warnings` what holds of a layout alone.
  void plan(report::Table& table, const Question& question, std::vector<std::string>& warnings) const {
    if (!question.why_not.empty()) return add_refusal(table, question, text_, question.why_not);
    for (const auto& [word, text] : named_) {
      try {
        const capacity::Layout layout = capacity::layout_for(text, question.model);
        if (counted_ && layout.gpus() != question.gpus) {
          throw Error(ErrorCode::kInvalidArgument, fmt::format("{} takes {}, not {}", to_text(layout),
                                                               counted(layout.gpus(), "GPU"), question.gpus));
        }
        if (const std::string why = capacity::crossing(layout, question.gpus_per_node); !why.empty())
          throw Error(ErrorCode::kInvalidArgument, why);
        plan_one(table, question, layout);
        for (const std::string& cut : refused_cuts(question.model, question.request, layout))
          warnings.push_back(fmt::format("{}: {}", to_text(layout), cut));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) throw;
        add_refusal(table, question, word, error.what());
      }
    }
    if (!named_.empty()) return;
    const bool all = text_ == "all";
    try {
      const std::vector<capacity::Layout> layouts = candidate_layouts(question);
      if (all) {
        for (const capacity::Layout& layout : layouts) plan_one(table, question, layout);
      } else {
        plan_one(table, question, best_layout(question.model, question.request, layouts));
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      add_refusal(table, question, text_, error.what());
    }
  }

 private:
  static void plan_one(report::Table& table, const Question& question, const capacity::Layout& layout) {
    capacity::PlanRequest request = question.request;
    request.layout = layout;
    add_plan(table, question, plan_memory(question.model, request));
  }

  std::string text_;
  bool counted_;
  std::vector<std::pair<std::string, capacity::LayoutText>> named_;
};

/// "--context 8k..128k:x2" as single words; empty: the model's own maximum.
std::vector<std::string> counts(const std::string& text, const char* flag) {
  if (text.empty()) return {std::string()};
  std::vector<std::string> words;
  for (const std::int64_t count : spec::parse_count_list(text, flag))
    words.push_back(fmt::format("{}", count));
  return words;
}

std::vector<std::string> words(const std::string& text, const char* flag) {
  if (text.empty()) return {std::string()};
  return spec::parse_words(text, flag);
}

std::string headline(const report::Table& table) {
  std::int64_t fit = 0;
  std::int64_t impossible = 0;
  std::int64_t beyond = 0;
  for (const auto& row : table.rows) {
    fit += std::get<bool>(row[kFitsColumn]) ? 1 : 0;
    beyond += std::get<bool>(row[kBeyondColumn]) ? 1 : 0;
    impossible += std::holds_alternative<std::monostate>(row.back()) ? 0 : 1;
  }
  const auto all = std::ssize(table.rows);
  return fmt::format("{}: {} fit, {} not, {} impossible{}", counted(all, "plan"), fit, all - fit - impossible,
                     impossible,
                     beyond > 0 ? fmt::format("; {} beyond the model's own maximum", beyond) : "");
}

}  // namespace

Answer sweep_answer(const Options& options) {
  const RequestOptions& asked = options.request;
  const Layouts layouts(options.layouts, !asked.gpus.empty());
  const std::vector<std::string> gpus = words(asked.gpu, "--gpu");
  const std::vector<std::string> sizes = counts(asked.gpus, "--gpus");
  const std::vector<std::string> formats = words(asked.cache, "--cache");
  const std::vector<std::string> contexts = counts(asked.context, "--context");
  const std::size_t points =
      options.models.size() * gpus.size() * sizes.size() * formats.size() * contexts.size();
  if (points > kMostPoints) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the sweep has {} points; at most {} are planned", points, kMostPoints));
  }
  report::Table table = empty_table();
  std::vector<std::string> warnings;
  const auto warn = [&](const std::vector<std::string>& more) {
    for (const std::string& one : more) {
      if (std::ranges::find(warnings, one) == warnings.end()) warnings.push_back(one);
    }
  };
  for (const std::string& name : options.models) {
    const ModelConfig model = read_model(name);
    for (const std::string& gpu : gpus) {
      for (const std::string& size : sizes) {
        for (const std::string& format : formats) {
          for (const std::string& context : contexts) {
            RequestOptions one = asked;
            one.gpu = gpu;
            one.gpus = size;
            one.cache = format;
            one.context = context;
            const Question question = read_question(one, model);
            std::vector<std::string> of_layouts;
            layouts.plan(table, question, of_layouts);
            warn(of_layouts);
            warn(question.warnings);
            if (question.why_not.empty()) warn(capacity::setting_warnings(model, question.request));
          }
        }
      }
    }
  }
  Answer answer;
  report::Document& document = answer.document;
  document.kind = "memcalc.sweep";
  document.headline.push_back(headline(table));
  answer.fits =
      std::ranges::any_of(table.rows, [](const auto& row) { return std::get<bool>(row[kFitsColumn]); });
  if (draws(options)) document.figure = sweep_figure(table);
  document.tables.push_back(std::move(table));
  document.facts = {{"engine", asked.engine}};
  add_warnings(document, warnings);
  document.notes.emplace_back("tokens: whole sequences x context");
  return answer;
}

}  // namespace mla::memcalc
