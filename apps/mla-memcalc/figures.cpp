// SPDX-License-Identifier: Apache-2.0
#include "figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/search.hpp"
#include "report/gnuplot.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::Layout;
using capacity::MemoryPlan;
using capacity::StagePlan;
using report::BarPanel;
using report::LinePanel;
using report::Series;

double gib_of(std::int64_t bytes) {
  return to_gib(static_cast<double>(bytes));
}

/// Tokens in whole sequences over doubling contexts.
Series token_series(const Question& question, const Layout& layout) {
  constexpr std::int64_t kShortest = 1024;
  Series series{.name = to_text(layout), .points = {}};
  const std::int64_t longest = std::max(question.request.context, question.model.max_position);
  capacity::PlanRequest request = question.request;
  request.layout = layout;
  request.concurrency = 0;
  for (std::int64_t context = kShortest; context <= longest; context *= 2) {
    request.context = context;
    const MemoryPlan plan = plan_memory(question.model, request);
    if (plan.sequences > 0) {
      series.points.emplace_back(static_cast<double>(context), static_cast<double>(plan.sequences * context));
    }
  }
  return series;
}

LinePanel token_panel(const Question& question, const std::vector<Layout>& layouts) {
  LinePanel panel{.title = "Tokens held, whole sequences",
                  .x_title = "context (tokens of a sequence, k = 1,024)",
                  .y_title = "tokens on all GPUs",
                  .series = {}};
  for (const Layout& layout : layouts) panel.series.push_back(token_series(question, layout));
  return panel;
}

/// What lies outside the engine's share, or in its share but in none of the parts.
double rest_of(const MemoryPlan& plan, const StagePlan& stage) {
  const std::int64_t used =
      stage.weight_bytes + stage.runtime_bytes + std::max<std::int64_t>(0, stage.cache_budget);
  return gib_of(std::max<std::int64_t>(0, plan.gpu_memory_bytes - used));
}

std::vector<double> memory_of(const MemoryPlan& plan, const StagePlan& stage) {
  std::vector<double> values{gib_of(stage.weight_bytes)};
  for (const capacity::Line& line : stage.runtime)
    values.push_back(gib_of(std::get<std::int64_t>(line.value)));
  values.push_back(gib_of(std::max<std::int64_t>(0, stage.cache_budget)));
  values.push_back(rest_of(plan, stage));
  return values;
}

std::vector<std::string> memory_parts(const StagePlan& stage) {
  std::vector<std::string> parts{"weights"};
  for (const capacity::Line& line : stage.runtime)
    parts.push_back(line.title.substr(0, line.title.find(',')));
  parts.emplace_back("cache");
  parts.emplace_back("outside its share");
  return parts;
}

const StagePlan& limiting(const MemoryPlan& plan) {
  return plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
}

std::string text_of(const report::Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* count = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *count);
  return {};
}

double number_of(const report::Cell& cell) {
  if (const auto* count = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*count);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  return std::numeric_limits<double>::quiet_NaN();
}

std::size_t column_of(const report::Table& table, std::string_view key) {
  const auto found = std::ranges::find(table.columns, key, &report::Column::key);
  if (found == table.columns.end()) throw Error(ErrorCode::kInternal, fmt::format("no column {}", key));
  return static_cast<std::size_t>(found - table.columns.begin());
}

/// Whether a column says anything that tells rows apart.
bool varies(const report::Table& table, std::size_t column) {
  return std::ranges::any_of(table.rows,
                             [&](const auto& row) { return row[column] != table.rows.front()[column]; });
}

/// Whether there is more than one layout for the same model, GPUs, format and context.
bool several_layouts(const report::Table& plans) {
  std::set<std::string> settings;
  return std::ranges::any_of(plans.rows, [&](const auto& row) {
    std::string one;
    for (const char* key : {"model", "gpu", "gpus", "cache_format", "context"})
      one += text_of(row[column_of(plans, key)]) + '\n';
    return !settings.insert(one).second;
  });
}

}  // namespace

std::vector<Layout> rival_layouts(const Question& question, std::int64_t gpus) {
  const int pp = question.space.pp.value_or(1);
  const int n = std::max(1, static_cast<int>(gpus) / pp);
  Layout replicas{.dp = n, .pp = pp};
  replicas.ep = capacity::default_expert_ranks(question.model, replicas);
  std::vector<Layout> rivals;
  for (Layout layout : {Layout{.tp = n, .pp = pp}, Layout{.tp = n, .pp = pp, .dcp = n}, replicas}) {
    layout.stage_layers = question.space.stage_layers;
    const bool crosses = !capacity::crossing(layout, question.gpus_per_node).empty();
    if (crosses || (layout.tp > 1 && !question.request.engine.splits_heads)) continue;
    try {
      validate(layout, question.model, question.request.engine);
      if (std::ranges::find(rivals, layout) == rivals.end()) rivals.push_back(layout);
    } catch (const Error& error) {  // not a layout this model can have
      if (error.code() != ErrorCode::kInvalidArgument) throw;
    }
  }
  return rivals;
}

report::Figure plan_figure(const Question& question, const MemoryPlan& plan) {
  BarPanel memory{.title = fmt::format("Memory of a GPU, {}", to_text(plan.layout)),
                  .y_title = "GiB",
                  .parts = memory_parts(limiting(plan)),
                  .bars = {},
                  .stacked = true};
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    memory.bars.push_back({plan.stages.size() == 1 ? question.gpu_title : fmt::format("stage {}", i),
                           memory_of(plan, plan.stages[i])});
  }
  std::vector<Layout> layouts{plan.layout};
  const bool budget_a_stage = question.request.cache_bytes.size() > 1;  // says nothing about other layouts
  for (const Layout& rival : rival_layouts(question, plan.layout.gpus())) {
    if (!(rival == plan.layout) && !budget_a_stage) layouts.push_back(rival);
  }
  return {.alternative = fmt::format(
              "Memory of a GPU by part, and tokens in whole sequences against context, for {} on {}",
              question.model.title, gpus_text(question, plan.layout.gpus())),
          .panels = {std::move(memory), token_panel(question, layouts)}};
}

report::Figure compare_figure(const Question& question, const std::vector<MemoryPlan>& plans,
                              const std::vector<std::size_t>& rows) {
  constexpr std::size_t kMostLines = 6;
  BarPanel memory{.title = "Memory of a GPU",
                  .y_title = "GiB",
                  .parts = memory_parts(limiting(plans.front())),
                  .bars = {},
                  .stacked = true};
  std::vector<Layout> layouts;
  for (const std::size_t row : rows) {
    memory.bars.push_back({to_text(plans[row].layout), memory_of(plans[row], limiting(plans[row]))});
    if (layouts.size() < kMostLines) layouts.push_back(plans[row].layout);
  }
  return {.alternative = fmt::format(
              "Memory of a GPU by part for each layout, and tokens in whole sequences against context, for "
              "{} on {}; the numbers are in the table of layouts",
              question.model.title, gpus_text(question, question.gpus)),
          .panels = {std::move(memory), token_panel(question, layouts)}};
}

report::Figure sweep_figure(const report::Table& plans) {
  const std::size_t context = column_of(plans, "context");
  const std::size_t tokens = column_of(plans, "tokens");
  const std::size_t model = column_of(plans, "model");
  std::vector<std::size_t> names;
  for (const char* key : {"gpu", "gpus", "layout", "cache_format"}) {
    // A layout that was chosen for each row is an answer, and one line goes through different ones.
    if (std::string_view(key) == "layout" && !several_layouts(plans)) continue;
    const std::size_t column = column_of(plans, key);
    if (!plans.rows.empty() && varies(plans, column)) names.push_back(column);
  }
  std::vector<std::string> models;
  std::map<std::string, std::vector<Series>> lines;
  for (const auto& row : plans.rows) {
    const double held = number_of(row[tokens]);
    if (!(held > 0)) continue;
    std::string name;
    for (const std::size_t column : names) {
      name += fmt::format("{}{}{}", name.empty() ? "" : ", ", text_of(row[column]),
                          plans.columns[column].key == "gpus" ? " GPUs" : "");
    }
    const std::string of = text_of(row[model]);
    if (std::ranges::find(models, of) == models.end()) models.push_back(of);
    std::vector<Series>& series = lines[of];
    auto same = std::ranges::find(series, name, &Series::name);
    if (same == series.end()) same = series.insert(series.end(), Series{.name = name, .points = {}});
    same->points.emplace_back(number_of(row[context]), held);
  }
  report::Figure figure{
      .alternative = "Tokens in whole sequences against context; the numbers are in the table of plans",
      .panels = {}};
  for (const std::string& of : models) {
    for (Series& series : lines[of]) std::ranges::sort(series.points);
    figure.panels.emplace_back(LinePanel{.title = of,
                                         .x_title = "context (tokens of a sequence, k = 1,024)",
                                         .y_title = "tokens on all GPUs",
                                         .series = lines[of]});
  }
  return figure;
}

report::Figure table_figure(const report::Table& per_token) {
  constexpr const char* kKeys[] = {"bf16", "fp8", "fp8_ds_mla", "mha"};
  BarPanel panel{.title = "Cache of a token, all layers", .y_title = "bytes", .parts = {}, .bars = {}};
  for (const char* key : kKeys) panel.parts.push_back(per_token.columns[column_of(per_token, key)].title);
  for (const auto& row : per_token.rows) {
    report::Bar bar{.name = text_of(row[0]), .values = {}};
    for (const char* key : kKeys) bar.values.push_back(number_of(row[column_of(per_token, key)]));
    panel.bars.push_back(std::move(bar));
  }
  return {.alternative =
              "Bytes of a token by model and format, beside multi-head attention of the same widths; the "
              "numbers are "
              "in the table of bytes of a token",
          .panels = {std::move(panel)}};
}

report::Figure savings_figure(const capacity::Savings& savings) {
  BarPanel panel{.title = fmt::format("One sequence of {} tokens", report::with_thousands(savings.context)),
                 .y_title = "GiB",
                 .parts = {"read a step", "stored, full cache", "stored, ring cache"},
                 .bars = {}};
  for (const capacity::LayerSavings& one : savings.layers) {
    panel.bars.push_back({fmt::format("{} layers: {}", one.layers, one.what),
                          {to_gib(one.read_bytes), to_gib(one.full_bytes), to_gib(one.ring_bytes)}});
  }
  return {.alternative =
              "GiB read by a decode step and stored by a full and a ring cache, by kind of layer; the "
              "numbers are in the "
              "table",
          .panels = {std::move(panel)}};
}

void draw(const std::optional<report::Figure>& figure, const std::string& file) {
  const bool svg = file.ends_with(".svg");
  if (!svg && !file.ends_with(".png")) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--plot {} is neither a .svg nor a .png", text::quoted(file)),
                "the end of the name chooses the format");
  }
  if (!figure) throw Error(ErrorCode::kInvalidArgument, "--plot has nothing to draw here");
  const std::string picture =
      report::run_gnuplot(figure_script(*figure, svg ? report::Picture::kSvg : report::Picture::kPng));
  errno = 0;
  std::ofstream out(file, std::ios::binary);
  out << picture;
  out.close();
  if (!out) {
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", text::quoted(file), std::strerror(errno)));
  }
}

}  // namespace mla::memcalc
