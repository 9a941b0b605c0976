// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "figures.hpp"
#include "mla/error.hpp"
#include "plan/plan_warnings.hpp"
#include "plan/pools.hpp"
#include "plan/savings.hpp"
#include "spec/values.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::LayerSavings;
using capacity::Savings;

std::int64_t count_of(const std::string& text, const char* flag, std::int64_t low) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t value = spec::parse_count(text, flag);
  if (value < low || value > kMost) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is {}; it must be {} to {}", flag, value, low, kMost));
  }
  return value;
}

capacity::SavingsRequest read_request(const RequestOptions& request, const Options& options,
                                      const ModelConfig& model) {
  capacity::SavingsRequest asked;
  asked.engine = engine_rules(request);
  asked.format = cache_format(request, model, asked.engine);
  asked.context =
      request.context.empty() ? longest_context(model) : count_of(request.context, "--context", 1);
  if (!options.window.empty()) asked.window = count_of(options.window, "--window", 1);
  asked.sink = count_of(options.sink, "--sink", 0);
  const int usual = capacity::default_block(model, asked.engine);
  constexpr std::int64_t kMostBlock = 1 << 20;
  asked.block = request.block.empty()
                    ? usual
                    : static_cast<int>(std::min(count_of(request.block, "--block", 1), kMostBlock));
  return asked;
}

double saved(double now, double before) {
  return before > 0 ? 100 * (1 - now / before) : 0;
}

std::string size(double bytes) {
  return report::human_gib(bytes);
}

/// "saves 96.8 %", "saves nothing", "costs 11.5 % more".
std::string saves(double now, double before) {
  const double percent = saved(now, before);
  if (percent == 0) return "saves nothing";
  return percent > 0 ? fmt::format("saves {:.1f} %", percent) : fmt::format("costs {:.1f} % more", -percent);
}

report::Table layers_table(const Savings& savings) {
  report::Table table{
      .name = "layers", .title = "One sequence, by what a layer reads", .columns = {}, .rows = {}};
  table.columns = {{.key = "reads", .title = "reads"},
                   {.key = "layers", .title = "layers"},
                   {.key = "tokens_read", .title = "tokens a step", .thousands = true},
                   {.key = "blocks_read", .title = "blocks a step", .thousands = true},
                   {.key = "read_gib", .title = "GiB read a step", .precision = 4},
                   {.key = "reads_saved_percent", .title = "reads saved %", .precision = 1},
                   {.key = "full_gib", .title = "GiB stored, full cache", .precision = 4},
                   {.key = "ring_gib", .title = "GiB stored, ring cache", .precision = 4},
                   {.key = "memory_saved_percent", .title = "memory a ring saves %", .precision = 1}};
  const auto add = [&](const std::string& what, report::Cell layers, report::Cell tokens, report::Cell blocks,
                       double read, double full_read, double full, double ring) {
    table.rows.push_back({what, std::move(layers), std::move(tokens), std::move(blocks), to_gib(read),
                          saved(read, full_read), to_gib(full), to_gib(ring), saved(ring, full)});
  };
  for (const LayerSavings& one : savings.layers) {
    const bool state = one.tokens_read == 0;
    add(one.what, std::int64_t{one.layers}, state ? report::Cell() : report::Cell(one.tokens_read),
        state ? report::Cell() : report::Cell(one.blocks_read), one.read_bytes, one.full_read_bytes,
        one.full_bytes, one.ring_bytes);
  }
  if (savings.layers.size() > 1) {
    add("all", report::Cell(), report::Cell(), report::Cell(), savings.read_bytes, savings.full_read_bytes,
        savings.full_bytes, savings.ring_bytes);
  }
  return table;
}

std::string engine_note(const capacity::EngineRules& engine) {
  switch (engine.window) {
    case capacity::WindowRule::kFullLength:
      return fmt::format("{} keeps window layers at full length: its memory is the full cache's",
                         engine.name);
    case capacity::WindowRule::kExact:
    case capacity::WindowRule::kWithChunk:
    case capacity::WindowRule::kWithBatch:
      return fmt::format(
          "{} drops what left the window of layers that have one in the config: there its memory is near the "
          "ring's; a window imposed on other layers frees nothing",
          engine.name);
  }
  return {};
}

/// What the engine itself stores; empty without an engine.
std::string engine_memory(const Savings& savings, const capacity::EngineRules& engine) {
  if (engine.name == "none") return {};
  if (savings.engine_bytes == 0) return fmt::format("memory in {}: it takes no such block", engine.name);
  constexpr double kShown = 0.05;  // of a per cent
  const auto bytes = static_cast<double>(savings.engine_bytes);
  const double percent = saved(bytes, savings.full_bytes);
  return fmt::format("memory in {}: {} a sequence in whole blocks, {}", engine.name, size(bytes),
                     std::abs(percent) < kShown ? "as much as a full cache"
                     : percent > 0              ? fmt::format("which saves {:.1f} % of a full cache", percent)
                                                : fmt::format("{:.1f} % more than a full cache", -percent));
}

}  // namespace

Answer savings_answer(const Options& options) {
  const ModelConfig model = read_model(options.request.model);
  const capacity::SavingsRequest request = read_request(options.request, options, model);
  const Savings savings = plan_savings(model, request);
  Answer answer;
  report::Document& document = answer.document;
  document.kind = "memcalc.savings";
  document.headline.push_back(
      fmt::format("{}, {}, {} cache: a decode step reads {} of {} a sequence, which {}{}", model.title,
                  context_text(model, request.context), request.format.name, size(savings.read_bytes),
                  size(savings.full_read_bytes), saves(savings.read_bytes, savings.full_read_bytes),
                  savings.read_bytes < savings.full_read_bytes ? " of the reads" : ""));
  if (std::string engine = engine_memory(savings, request.engine); !engine.empty())
    document.headline.push_back(std::move(engine));
  document.headline.push_back(fmt::format(
      "memory: a full cache stores {} and saves nothing; a ring cache would store {}, which {}{}",
      size(savings.full_bytes), size(savings.ring_bytes), saves(savings.ring_bytes, savings.full_bytes),
      savings.ring_bytes < savings.full_bytes ? " of the memory" : ""));
  document.facts = {{"model", model.name},
                    {"context", request.context},
                    {"window", request.window > 0 ? report::Cell(request.window) : report::Cell()},
                    {"sink", request.sink},
                    {"block", std::int64_t{request.block}},
                    {"cache_format", std::string(request.format.name)}};
  document.tables.push_back(layers_table(savings));
  document.notes.push_back(engine_note(request.engine));
  capacity::PlanRequest setting;
  setting.engine = request.engine;
  setting.cache = request.format;
  setting.context = request.context;
  setting.weight_bytes = 0;  // not asked about
  add_warnings(document, capacity::setting_warnings(model, setting));
  if (model.indexer && model.mla) {
    document.notes.emplace_back(
        "the index keys of every token are read to pick the top-k; they come on top of the rows in both "
        "kinds of cache, and no row can be dropped: any may be picked later");
  }
  if (draws(options)) document.figure = savings_figure(savings);
  if (options.formulas) document.tables.push_back(formulas_table(savings.lines));
  return answer;
}

}  // namespace mla::memcalc
