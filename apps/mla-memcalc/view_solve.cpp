// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/search.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::MemoryPlan;
using report::Cell;

constexpr int kMostGpus = 4096;

/// The sentence that answers, the number in it, and the plan it belongs to.
struct Solution {
  bool found = false;
  std::string sentence;
  Cell value;
  MemoryPlan plan;
};

std::string wanted_text(const Question& question) {
  return counted(std::max<std::int64_t>(1, question.request.concurrency), "sequence");
}

/// "1 sequence fits", "3 sequences fit".
std::string wanted_fits(const Question& question) {
  return fmt::format("{} {}", wanted_text(question), question.request.concurrency > 1 ? "fit" : "fits");
}

std::string at_layout(const Question& question, const capacity::Layout& layout) {
  return fmt::format("{} ({})", setting(question), to_text(layout));
}

Solution solve_context(const Question& question) {
  const auto best = capacity::largest_context(question.model, question.request, candidate_layouts(question));
  capacity::PlanRequest request = question.request;
  request.layout = best.layout;
  request.context = std::max<std::int64_t>(1, best.answer);
  MemoryPlan plan = plan_memory(question.model, request);
  if (best.answer < 1) {
    return {false,
            fmt::format("{}: {} at no context{}", at_layout(question, best.layout), wanted_fits(question),
                        plan.binding == capacity::Binding::kWeights ? ": the weights alone do not fit" : ""),
            best.answer, std::move(plan)};
  }
  const bool model_limit = best.answer == question.model.max_position;
  const bool asked_limit = question.model.max_position == 0 && best.answer == question.request.context;
  return {true,
          fmt::format("{}: {} up to {} tokens{}{}", at_layout(question, best.layout), wanted_fits(question),
                      report::with_thousands(best.answer), question.request.concurrency > 1 ? " each" : "",
                      model_limit   ? ", the model's own maximum"
                      : asked_limit ? ", as far as --context looks (the config has no maximum)"
                                    : ""),
          best.answer, std::move(plan)};
}

Solution solve_concurrency(const Question& question) {
  capacity::PlanRequest request = question.request;
  request.layout = chosen_layout(question);
  MemoryPlan plan = plan_memory(question.model, request);
  const std::string where = replicas_text(plan);
  return {plan.sequences > 0,
          fmt::format("{}: {} of {} tokens {}{}", at_layout(question, request.layout),
                      counted(plan.sequences, "sequence"), report::with_thousands(plan.context),
                      plan.sequences == 1 ? "fits" : "fit", where.empty() ? "" : fmt::format(" ({})", where)),
          plan.sequences, std::move(plan)};
}

Solution solve_gpus(const Question& question) {
  auto answer = question.layout_given ? capacity::fewest_gpus(question.model, question.request, kMostGpus)
                                      : capacity::fewest_gpus(question.model, question.request,
                                                              layout_space(question), kMostGpus);
  const std::string tokens = report::with_thousands(question.request.context);
  if (answer) {
    return {true,
            fmt::format("{} for {} of {} tokens: {} x {} ({}), which {} {}", question.model.title,
                        wanted_text(question), tokens, answer->layout.gpus(), question.gpu_title,
                        to_text(answer->layout), answer->layout.gpus() == 1 ? "holds" : "hold",
                        report::with_thousands(answer->plan.sequences)),
            answer->layout.gpus(), std::move(answer->plan)};
  }
  capacity::PlanRequest request = question.request;
  request.layout = chosen_layout(question);
  const std::string how = question.layout_given
                              ? fmt::format(" with tp {} and pp {}", request.layout.tp, request.layout.pp)
                              : std::string();
  return {
      false,
      fmt::format("{}: no number up to {} of {} holds {} of {} tokens{}{}", question.model.title,
                  report::with_thousands(kMostGpus), question.gpu_title, wanted_text(question), tokens, how,
                  question.request.engine.replicas
                      ? ""
                      : fmt::format(" in one {}, which has no replicas", question.request.engine.name)),
      Cell(), plan_memory(question.model, request)};
}

Solution solve_utilization(const Question& question) {
  const auto best =
      capacity::smallest_utilization(question.model, question.request, candidate_layouts(question));
  capacity::PlanRequest request = question.request;
  request.layout = best.layout;
  request.utilization = best.answer.value_or(1.0);
  const bool many = question.request.concurrency > 1;
  const std::string what = fmt::format("{}: {} of {} tokens", at_layout(question, best.layout),
                                       wanted_text(question), report::with_thousands(request.context));
  return {best.answer.has_value(),
          best.answer
              ? fmt::format("{} {} from utilization {:.3f} on", what, many ? "fit" : "fits", *best.answer)
              : fmt::format("{} {} not fit even with all of the memory", what, many ? "do" : "does"),
          best.answer ? Cell(*best.answer) : Cell(), plan_memory(question.model, request)};
}

/// Flags that say what is asked for, and so are not looked at.
std::vector<std::string> flags_solved_for(const Options& options) {
  const RequestOptions usual;
  const RequestOptions& asked = options.request;
  const auto idle = [&](const char* flag) {
    return std::vector<std::string>{fmt::format("{} changes nothing here: it is what is solved for", flag)};
  };
  if (options.unknown == "concurrency" && !asked.concurrency.empty()) return idle("--concurrency");
  if (options.unknown == "utilization" && !asked.utilization.empty()) return idle("--utilization");
  if (options.unknown == "gpus" && asked.gpus != usual.gpus && asked.pp.empty() && asked.tp.empty() &&
      asked.dp.empty() && asked.attention == usual.attention) {
    return idle("--gpus");
  }
  return {};
}

}  // namespace

Answer solve_answer(const Options& options) {
  using Solver = Solution (*)(const Question&);
  constexpr std::pair<std::string_view, Solver> kSolvers[] = {{"context", solve_context},
                                                              {"concurrency", solve_concurrency},
                                                              {"gpus", solve_gpus},
                                                              {"utilization", solve_utilization}};
  std::vector<std::string> names;
  for (const auto& [name, solver] : kSolvers) names.emplace_back(name);
  const auto found =
      std::ranges::find_if(kSolvers, [&](const auto& one) { return one.first == options.unknown; });
  if (found == std::end(kSolvers)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--for {} is not known", text::quoted(options.unknown)),
                text::suggestion(options.unknown, names));
  }
  const Question question = read_question(options.request);
  Solution solution = found->second(question);
  Answer answer;
  answer.fits = solution.found;
  report::Document& document = answer.document;
  document.kind = "memcalc.solve";
  document.headline.push_back(solution.sentence);
  if (options.output.format == report::Format::kJson) {  // people have read them in the headline
    document.facts = {{"model", question.model.name},
                      {"gpu", question.request.gpu_name},
                      {"for", options.unknown},
                      {"found", solution.found},
                      {"value", solution.value}};
  }
  document.tables.push_back(plans_table({solution.plan}, {0}));
  add_warnings(document, question.warnings);
  add_warnings(document, flags_solved_for(options));
  add_warnings(document, solution.plan.warnings);
  if (options.formulas) document.tables.push_back(formulas_table(all_lines(solution.plan)));
  return answer;
}

}  // namespace mla::memcalc
