// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/search.hpp"
#include "spec/values.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::MemoryPlan;
using report::Cell;

report::Table plans_table(const std::vector<MemoryPlan>& plans, std::size_t rows) {
  report::Table table{.name = "layouts", .title = "Layouts", .columns = {}, .rows = {}};
  table.columns = {
      {.key = "layout", .title = "layout"},
      {.key = "sequences", .title = "sequences", .thousands = true},
      {.key = "replicas", .title = "replicas"},
      {.key = "sequences_per_replica", .title = "a replica", .thousands = true},
      {.key = "longest_context", .title = "longest", .thousands = true},
      {.key = "weights_gib", .title = "weights GiB a GPU"},
      {.key = "cache_gib", .title = "cache GiB a GPU"},
      {.key = "bytes_per_token", .title = "B a token and GPU", .precision = 1, .thousands = true},
      {.key = "limited_by", .title = "limited by"},
      {.key = "fits", .title = "fits"}};
  for (const MemoryPlan& plan : plans) {
    if (table.rows.size() == rows) break;
    const capacity::StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
    table.rows.push_back({to_text(plan.layout), plan.sequences, plan.replicas, plan.sequences_per_replica,
                          plan.longest_context, to_gib(static_cast<double>(stage.weight_bytes)),
                          to_gib(static_cast<double>(stage.cache_budget)),
                          bytes_cell(plan.cache_bytes_per_token), std::string(name_of(plan.binding)),
                          plan.fits});
  }
  return table;
}

std::string setting(const Question& question) {
  return fmt::format("{} on {}", question.model.title, gpus_text(question, question.gpus));
}

/// What each solved unknown is called, and the sentence of its answer.
struct Solution {
  bool found = false;
  std::string sentence;
  Cell value;
  MemoryPlan plan;
};

Solution solve_context(const Question& question, capacity::PlanRequest request) {
  const std::int64_t context = capacity::largest_context(question.model, request);
  const std::int64_t wanted = std::max<std::int64_t>(1, request.concurrency);
  request.context = std::max<std::int64_t>(1, context);
  return {context > 0,
          context > 0 ? fmt::format("{} ({}): {} fit up to {} tokens each", setting(question),
                                    to_text(request.layout), counted(wanted, "sequence"),
                                    report::with_thousands(context))
                      : fmt::format("{} ({}): {} fit at no context", setting(question),
                                    to_text(request.layout), counted(wanted, "sequence")),
          context, plan_memory(question.model, request)};
}

Solution solve_concurrency(const Question& question, const capacity::PlanRequest& request) {
  MemoryPlan plan = plan_memory(question.model, request);
  return {plan.sequences > 0,
          fmt::format("{} ({}): {} of {} tokens fit", setting(question), to_text(request.layout),
                      counted(plan.sequences, "sequence"), report::with_thousands(plan.context)),
          plan.sequences, std::move(plan)};
}

Solution solve_gpus(const Question& question, capacity::PlanRequest request) {
  constexpr int kLimit = 4096;
  const std::int64_t wanted = std::max<std::int64_t>(1, request.concurrency);
  if (auto answer = capacity::fewest_gpus(question.model, request, kLimit)) {
    return {true,
            fmt::format("{} for {} of {} tokens: {} x {} ({}), which hold {}", question.model.title,
                        counted(wanted, "sequence"), report::with_thousands(request.context),
                        answer->layout.gpus(), question.gpu_title, to_text(answer->layout),
                        report::with_thousands(answer->plan.sequences)),
            answer->layout.gpus(), std::move(answer->plan)};
  }
  return {false,
          fmt::format("{}: no number up to {} of {} holds {} of {} tokens with tp {} and pp {}",
                      question.model.title, report::with_thousands(kLimit), question.gpu_title,
                      counted(wanted, "sequence"), report::with_thousands(request.context), request.layout.tp,
                      request.layout.pp),
          Cell(), plan_memory(question.model, request)};
}

Solution solve_utilization(const Question& question, capacity::PlanRequest request) {
  const std::optional<double> share = capacity::smallest_utilization(question.model, request);
  const std::int64_t wanted = std::max<std::int64_t>(1, request.concurrency);
  request.utilization = share.value_or(1.0);
  return {share.has_value(),
          share ? fmt::format("{} ({}): {} of {} tokens fit from utilization {:.3f} on", setting(question),
                              to_text(request.layout), counted(wanted, "sequence"),
                              report::with_thousands(request.context), *share)
                : fmt::format("{} ({}): {} of {} tokens do not fit even with all of the memory",
                              setting(question), to_text(request.layout), counted(wanted, "sequence"),
                              report::with_thousands(request.context)),
          share ? Cell(*share) : Cell(), plan_memory(question.model, request)};
}

}  // namespace

Answer solve_answer(const Options& options) {
  using Solver = Solution (*)(const Question&, capacity::PlanRequest);
  const std::pair<std::string_view, Solver> kSolvers[] = {
      {"context", solve_context},
      {"concurrency", [](const Question& q, capacity::PlanRequest r) { return solve_concurrency(q, r); }},
      {"gpus", solve_gpus},
      {"utilization", solve_utilization}};
  Question question = read_question(options.request);
  question.request.layout = chosen_layout(question);
  std::vector<std::string> names;
  for (const auto& [name, solver] : kSolvers) {
    names.emplace_back(name);
    if (name != options.unknown) continue;
    Solution solution = solver(question, question.request);
    Answer answer;
    answer.fits = solution.found;
    report::Document& document = answer.document;
    document.kind = "memcalc.solve";
    document.headline.push_back(solution.sentence);
    document.facts = {{"model", question.model.name},
                      {"gpu", question.request.gpu_name},
                      {"for", options.unknown},
                      {"found", solution.found},
                      {"value", solution.value}};
    add_warnings(document, solution.plan);
    if (options.formulas) document.tables.push_back(formulas_table(all_lines(solution.plan)));
    document.tables.insert(document.tables.begin(), plans_table({std::move(solution.plan)}, 1));
    return answer;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--for {} is not known", text::quoted(options.unknown)),
              text::suggestion(options.unknown, names));
}

Answer compare_answer(const Options& options) {
  Question question = read_question(options.request);
  if (question.layout_given) {
    throw Error(ErrorCode::kInvalidArgument, "compare tries all layouts, but one of them is given by flags",
                "leave out --attention, --tp, --dp, --pp, --dcp, --ep and --stages, or use plan");
  }
  const std::int64_t top = spec::parse_count(options.top, "--top");
  const std::vector<capacity::Layout> layouts = capacity::possible_layouts(
      question.model, question.gpus,
      {.gpus_per_node = question.gpus_per_node, .pipeline = true, .context_parallel = true});
  if (layouts.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} GPUs cannot be split for {}", question.gpus, question.model.name),
                "try another number of GPUs");
  }
  const std::vector<MemoryPlan> plans = rank_layouts(question.model, question.request, layouts);
  Answer answer;
  answer.fits = plans.front().fits;
  report::Document& document = answer.document;
  document.kind = "memcalc.compare";
  document.headline.push_back(plans.front().sequences > 0
                                  ? fmt::format("{}, {} context: {} holds most, {}", setting(question),
                                                length_text(plans.front().context),
                                                to_text(plans.front().layout),
                                                counted(plans.front().sequences, "sequence"))
                                  : fmt::format("{}, {} context: no layout holds one sequence",
                                                setting(question), length_text(plans.front().context)));
  const std::size_t rows = top == 0 ? plans.size() : static_cast<std::size_t>(top);
  document.tables.push_back(plans_table(plans, rows));
  if (plans.size() > rows) {
    document.notes.push_back(
        fmt::format("{} more layouts are not shown (--top 0 shows all)", plans.size() - rows));
  }
  document.notes.push_back(
      "most sequences first; speed is another question: more replicas read more weights a token, dcp and tp "
      "talk more");
  if (options.formulas) document.tables.push_back(formulas_table(all_lines(plans.front())));
  return answer;
}

}  // namespace mla::memcalc
