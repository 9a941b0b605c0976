// SPDX-License-Identifier: Apache-2.0
#include "view.hpp"

#include <fmt/format.h>

#include <array>

#include "core/count.hpp"
#include "mla/error.hpp"

namespace mla::memcalc {
namespace {

std::string_view unit_text(capacity::Unit unit) {
  constexpr std::array<std::string_view, 6> kNames{"B", "tokens", "sequences", "blocks", "", "x"};
  return kNames[static_cast<std::size_t>(unit)];
}

}  // namespace

std::string length_text(std::int64_t tokens) {
  const std::string shortest = text::format_count(tokens);
  return shortest.find_first_of("kmgt") != std::string::npos ? shortest : report::with_thousands(tokens);
}

std::string beyond_text(const ModelConfig& model, std::int64_t tokens) {
  if (model.max_position < 1 || tokens <= model.max_position) return {};
  return fmt::format(" (beyond the model's own {})", report::with_thousands(model.max_position));
}

std::string context_text(const ModelConfig& model, std::int64_t tokens) {
  return fmt::format("{} context{}", length_text(tokens), beyond_text(model, tokens));
}

report::Cell bytes_cell(double bytes) {
  const auto whole = static_cast<std::int64_t>(bytes);
  if (static_cast<double>(whole) == bytes) return whole;
  return bytes;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", report::with_thousands(count), noun, count == 1 ? "" : "s");
}

std::string gpus_text(const Question& question, std::int64_t gpus) {
  return fmt::format("{} x {}", gpus, question.gpu_title);
}

std::string replicas_text(const capacity::MemoryPlan& plan) {
  if (plan.replicas == 1) return {};
  return fmt::format("{} on each of {} replicas", plan.sequences_per_replica, plan.replicas);
}

std::string setting(const Question& question) {
  return fmt::format("{} on {}", question.model.title, gpus_text(question, question.gpus));
}

std::int64_t latent_copies(const Question& question, const capacity::Layout& layout) {
  return caches_latent(question.model, question.request.engine) ? layout.tp / layout.dcp : 0;
}

report::Table plans_table(const std::vector<capacity::MemoryPlan>& plans,
                          const std::vector<std::size_t>& rows) {
  report::Table table{
      .name = "layouts", .title = "Layouts: GiB and bytes are those of one GPU", .columns = {}, .rows = {}};
  table.columns = {
      {.key = "layout", .title = "layout", .whole = true},
      {.key = "sequences", .title = "sequences", .thousands = true},
      {.key = "replicas", .title = "replicas"},
      {.key = "sequences_per_replica", .title = "a replica", .thousands = true},
      {.key = "at_once", .title = "at once", .thousands = true},
      {.key = "longest_context", .title = "longest", .thousands = true},
      {.key = "weights_gib_per_gpu", .title = "weights GiB"},
      {.key = "cache_gib_per_gpu", .title = "cache GiB"},
      {.key = "bytes_per_token_per_gpu", .title = "B a token", .precision = 1, .thousands = true},
      {.key = "limited_by", .title = "limited by"},
      {.key = "fits", .title = "fits"}};
  for (const std::size_t row : rows) {
    const capacity::MemoryPlan& plan = plans[row];
    const capacity::StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
    table.rows.push_back({to_text(plan.layout), plan.sequences, plan.replicas, plan.sequences_per_replica,
                          plan.at_once, plan.longest_context, to_gib(static_cast<double>(stage.weight_bytes)),
                          to_gib(static_cast<double>(stage.cache_budget)),
                          bytes_cell(plan.cache_bytes_per_token), std::string(name_of(plan.binding)),
                          plan.fits});
  }
  return table;
}

report::Table formulas_table(const std::vector<capacity::Line>& lines) {
  report::Table table{.name = "formulas", .title = "Formulas", .columns = {}, .rows = {}};
  table.columns = {{.key = "number", .title = "number"},
                   {.key = "title", .title = "what"},
                   {.key = "value", .title = "value", .thousands = true},
                   {.key = "unit", .title = "unit"},
                   {.key = "formula", .title = "formula"},
                   {.key = "source", .title = "constants from"}};
  for (const capacity::Line& line : lines) {
    const report::Cell value = std::visit([](auto number) { return report::Cell(number); }, line.value);
    table.rows.push_back(
        {line.key, line.title, value, std::string(unit_text(line.unit)), line.formula, line.source});
  }
  return table;
}

void add_warnings(report::Document& document, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) document.notes.push_back("warning: " + warning);
}

std::vector<capacity::Line> all_lines(const capacity::MemoryPlan& plan) {
  const capacity::StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
  std::vector<capacity::Line> lines;
  for (const capacity::Line& line : plan.lines) {
    if (line.key == "weights.total") {
      lines.insert(lines.end(), stage.weights.lines.begin(), stage.weights.lines.end());
    }
    lines.push_back(line);
  }
  return lines;
}

Answer answer_to(const Options& options) {
  switch (options.command) {
    case Command::kPlan:
      return plan_answer(options);
    case Command::kSolve:
      return solve_answer(options);
    case Command::kCompare:
      return compare_answer(options);
    case Command::kSweep:
      return sweep_answer(options);
    case Command::kSavings:
      return savings_answer(options);
    case Command::kTable:
      return table_answer(options);
    case Command::kExamples:
      return examples_answer(options);
    case Command::kList:
      return list_answer(options);
    case Command::kCheck:
      return check_answer(options);
    case Command::kExplain:
      return explain_answer(options);
  }
  throw Error(ErrorCode::kInternal, "a command has no answer");
}

}  // namespace mla::memcalc
