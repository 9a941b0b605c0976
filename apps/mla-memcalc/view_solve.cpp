// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/plan_request.hpp"
#include "plan/search.hpp"
#include "remedies.hpp"
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
  std::string more = {};  ///< a second sentence: the answer in other terms, or what would help
};

std::string wanted_text(const Question& question) {
  return counted(std::max<std::int64_t>(1, question.request.concurrency), "sequence");
}

std::string tokens_text(const Question& question, std::int64_t tokens) {
  return fmt::format("{} tokens{}", report::with_thousands(tokens), beyond_text(question.model, tokens));
}

/// "1 sequence fits", "3 sequences fit".
std::string wanted_fits(const Question& question) {
  return fmt::format("{} {}", wanted_text(question), question.request.concurrency > 1 ? "fit" : "fits");
}

std::string at_layout(const Question& question, const capacity::Layout& layout) {
  return fmt::format("{} ({})", setting(question), to_text(layout));
}

/// ": the weights alone do not fit" or what else the plan says; empty where the cache is too small.
std::string why_none(const Question& question, const MemoryPlan& plan) {
  if (plan.binding == capacity::Binding::kWeights) return ": the weights alone do not fit";
  if (plan.at_once == plan.sequences) return {};
  return fmt::format(": {} at most {} at once ({})", plan.replicas > 1 ? "a replica runs" : "the engine runs",
                     report::with_thousands(batch_limit(question.request).sequences),
                     batch_limit(question.request).name);
}

/// The question as if --max-seqs were no limit.
Question without_batch_limit(const Question& question) {
  Question free = question;
  free.request.max_sequences = std::max(free.request.max_sequences, free.request.concurrency);
  return free;
}

Solution solve_context(const Question& question) {
  constexpr std::int64_t kUseful = 1024;  // a remedy is one for this context at least
  const auto best = capacity::largest_context(question.model, question.request, candidate_layouts(question));
  Question asked = question;
  asked.request.layout = best.layout;
  asked.request.context = best.answer > 0 ? best.answer : std::min(kUseful, question.request.context);
  MemoryPlan plan = plan_memory(question.model, asked.request);
  if (best.answer < 1) {
    std::string ways = remedies(asked, plan, "context");
    return {false,
            fmt::format("{}: {} at no context{}", at_layout(question, best.layout), wanted_fits(question),
                        why_none(question, plan)),
            best.answer, std::move(plan),
            ways.empty() ? ways : fmt::format("at {}: {}", length_text(asked.request.context), ways)};
  }
  std::string more;
  if (question.request.concurrency > question.request.max_sequences) {
    const Question free = without_batch_limit(question);
    const auto longer = capacity::largest_context(free.model, free.request, candidate_layouts(free));
    if (longer.answer > best.answer)
      more = fmt::format("with --max-seqs {}: up to {} ({})", free.request.max_sequences,
                         report::with_thousands(longer.answer), to_text(longer.layout));
  }
  const bool model_limit = best.answer == question.model.max_position;
  const bool asked_limit = question.model.max_position == 0 && best.answer == question.request.context;
  return {true,
          fmt::format("{}: {} up to {} tokens{}{}", at_layout(question, best.layout), wanted_fits(question),
                      report::with_thousands(best.answer), question.request.concurrency > 1 ? " each" : "",
                      model_limit   ? ", the model's own maximum"
                      : asked_limit ? ", as far as --context looks (the config has no maximum)"
                                    : ""),
          best.answer, std::move(plan), std::move(more)};
}

Solution solve_concurrency(const Question& question) {
  Question asked = question;
  asked.request.layout = chosen_layout(question);
  MemoryPlan plan = plan_memory(question.model, asked.request);
  const std::string where = replicas_text(plan);
  const std::string tokens = tokens_text(question, plan.context);
  const std::string answer =
      plan.at_once == plan.sequences
          ? fmt::format("{} of {} {}{}", counted(plan.sequences, "sequence"), tokens,
                        plan.sequences == 1 ? "fits" : "fit", where.empty() ? "" : " (" + where + ")")
          : fmt::format("{} of {} at once, as many as {} lets {} run; {} fit{}",
                        counted(plan.at_once, "sequence"), tokens, batch_limit(question.request).name,
                        plan.replicas > 1 ? fmt::format("{} replicas", plan.replicas) : "the engine",
                        report::with_thousands(plan.sequences), where.empty() ? "" : " (" + where + ")");
  std::string ways = remedies(asked, plan, "concurrency");
  return {plan.sequences > 0, fmt::format("{}: {}", at_layout(question, asked.request.layout), answer),
          plan.at_once, std::move(plan), std::move(ways)};
}

/// "--attention tp", "--tp 8 and --pp 2": what the user says of the layout.
std::string layout_flags(const RequestOptions& asked) {
  std::string text;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : " ", flag, value);
  };
  if (asked.attention != "auto") add("--attention", asked.attention);
  add("--tp", asked.tp);
  add("--dp", asked.dp);
  add("--pp", asked.pp);
  add("--dcp", asked.dcp);
  add("--ep", asked.ep);
  add("--stages", asked.stages);
  return text;
}

/// The number of GPUs that nobody sells or that fills no node, in whole nodes.
std::string in_whole_nodes(const Question& question, const capacity::GpuAnswer& least) {
  const auto whole = capacity::fewest_whole_gpus(question.model, question.request, question.space, kMostGpus);
  if (!whole || whole->layout.gpus() == least.layout.gpus()) return {};
  return fmt::format("{}: {} ({}), which hold {}",
                     whole->layout.gpus() < question.gpus_per_node
                         ? fmt::format("in a part of a node of {} that divides it", question.gpus_per_node)
                         : fmt::format("in whole nodes of {}", question.gpus_per_node),
                     whole->layout.gpus(), to_text(whole->layout),
                     report::with_thousands(whole->plan.sequences));
}

/// What fewer GPUs would do, but for --max-seqs or the flags of the layout.
std::string with_fewer(const Question& question, const capacity::GpuAnswer& least, const std::string& flags) {
  std::string text;
  const auto say = [&](const Question& other, const std::string& how) {
    const auto fewer = capacity::fewest_whole_gpus(question.model, other.request, other.space, kMostGpus);
    if (!fewer || fewer->layout.gpus() >= least.layout.gpus()) return;
    text += fmt::format("{}{}: {} ({})", text.empty() ? "" : "; ", how, fewer->layout.gpus(),
                        to_text(fewer->layout));
  };
  if (least.plan.at_once < least.plan.sequences)
    say(without_batch_limit(question), fmt::format("with --max-seqs {}", question.request.concurrency));
  if (!flags.empty() && question.request.cache_bytes.size() < 2) {
    Question any = question;
    any.space = {.gpus_per_node = question.gpus_per_node};
    say(any, "without " + flags);
  }
  return text;
}

/// Flags that no number of GPUs can meet: the rule that says so.
void check_layout_flags(const Question& question, const std::string& flags) {
  const capacity::LayoutSpace& space = question.space;
  if (space.tp || space.dcp.value_or(1) == 1) {
    capacity::Layout one{
        .tp = space.tp.value_or(1), .pp = space.pp.value_or(1), .dcp = space.dcp.value_or(1)};
    one.stage_layers = space.stage_layers;
    validate(one, question.model, question.request.engine);
  }
  if (space.dp) validate(capacity::Layout{.dp = *space.dp}, question.model, question.request.engine);
  if (space.ep) validate(capacity::Layout{.dp = std::max(1, *space.ep), .ep = *space.ep}, question.model);
  if (!nearest_layout(question.model, question.request, space, kMostGpus)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no number of GPUs up to {} has a layout with {} that suits {} on {}",
                            report::with_thousands(kMostGpus), flags, question.model.name,
                            question.request.engine.name),
                "leave a flag of the layout out, and it is searched for");
  }
}

Solution solve_gpus(const Question& question, const std::string& flags) {
  if (!flags.empty()) check_layout_flags(question, flags);
  const std::string with = flags.empty() ? "" : " with " + flags;
  const std::string tokens =
      fmt::format("{} of {}", wanted_text(question), tokens_text(question, question.request.context));
  auto answer = capacity::fewest_gpus(question.model, question.request, question.space, kMostGpus);
  if (answer) {
    std::string more = in_whole_nodes(question, *answer);
    if (const std::string fewer = with_fewer(question, *answer, flags); !fewer.empty())
      more += (more.empty() ? "" : "; ") + fewer;
    const MemoryPlan& plan = answer->plan;
    const bool one = answer->layout.gpus() == 1;
    return {true,
            fmt::format(
                "{} for {}{}: {} x {} ({}), which {} {}{}", question.model.title, tokens, with,
                answer->layout.gpus(), question.gpu_title, to_text(answer->layout), one ? "holds" : "hold",
                report::with_thousands(plan.sequences),
                plan.at_once == plan.sequences
                    ? ""
                    : fmt::format(" and {} {} at once ({})", one ? "runs" : "run",
                                  report::with_thousands(plan.at_once), batch_limit(question.request).name)),
            answer->layout.gpus(), std::move(answer->plan), std::move(more)};
  }
  Question asked = question;
  const auto nearest = capacity::nearest_layout(question.model, question.request, question.space, kMostGpus);
  if (!nearest) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no layout of up to {} GPUs suits {} on {}", report::with_thousands(kMostGpus),
                            question.model.name, question.request.engine.name));
  }
  asked.request.layout = *nearest;
  asked.gpus = static_cast<int>(nearest->gpus());
  MemoryPlan plan = plan_memory(question.model, asked.request);
  std::string ways = remedies(asked, plan, "gpus");
  return {
      false,
      fmt::format("{}: no number up to {} of {} holds {}{}{}; the nearest, {}, holds {}{}",
                  question.model.title, report::with_thousands(kMostGpus), question.gpu_title, tokens, with,
                  question.request.engine.replicas
                      ? ""
                      : fmt::format(" in one {}, which has no replicas", question.request.engine.name),
                  to_text(*nearest), report::with_thousands(plan.sequences), why_none(question, plan)),
      Cell(), std::move(plan), std::move(ways)};
}

Solution solve_utilization(const Question& question) {
  if (!question.request.cache_bytes.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--kv-memory is the cache's budget already: no utilization changes what fits",
                "leave --kv-memory out, and the budget follows from the utilization");
  }
  const auto best =
      capacity::smallest_utilization(question.model, question.request, candidate_layouts(question));
  Question asked = question;
  asked.request.layout = best.layout;
  asked.request.utilization = best.answer.value_or(1.0);
  MemoryPlan plan = plan_memory(question.model, asked.request);
  const bool many = question.request.concurrency > 1;
  const std::string what = fmt::format("{}: {} of {}", at_layout(question, best.layout),
                                       wanted_text(question), tokens_text(question, plan.context));
  if (best.answer) {
    return {true, fmt::format("{} {} from utilization {:.3f} on", what, many ? "fit" : "fits", *best.answer),
            *best.answer, std::move(plan)};
  }
  // What helps is asked at the share that engines take, not at all of the memory.
  asked.request.utilization.reset();
  std::string ways = remedies(asked, plan_memory(question.model, asked.request), "utilization");
  return {false,
          fmt::format("{} {} not fit even with all of the memory{}", what, many ? "do" : "does",
                      why_none(question, plan)),
          Cell(), std::move(plan), std::move(ways)};
}

/// The options without the one that is solved for, and its name if it was given.
std::pair<RequestOptions, std::string> without_unknown(const RequestOptions& given,
                                                       const std::string& unknown) {
  RequestOptions asked = given;
  const auto drop = [](std::string& value, const char* flag) {
    return std::exchange(value, "").empty() ? std::string() : std::string(flag);
  };
  if (unknown == "concurrency") return {asked, drop(asked.concurrency, "--concurrency")};
  if (unknown == "utilization") return {asked, drop(asked.utilization, "--utilization")};
  if (unknown == "gpus") return {asked, drop(asked.gpus, "--gpus")};
  return {asked, ""};  // --context says how far to look where the model has no maximum
}

}  // namespace

Answer solve_answer(const Options& options) {
  const std::vector<std::string> names{"context", "concurrency", "gpus", "utilization"};
  if (std::ranges::find(names, options.unknown) == names.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--for {} is not known", text::quoted(options.unknown)),
                text::suggestion(options.unknown, names));
  }
  std::string idle;
  RequestOptions asked;
  std::tie(asked, idle) = without_unknown(options.request, options.unknown);
  Question question = read_question(asked);
  if (options.unknown == "context" && question.model.max_position > 0 && !asked.context.empty()) {
    idle = "--context";
    question.request.context = question.model.max_position;
  }
  Solution solution = options.unknown == "context"       ? solve_context(question)
                      : options.unknown == "concurrency" ? solve_concurrency(question)
                      : options.unknown == "gpus"        ? solve_gpus(question, layout_flags(asked))
                                                         : solve_utilization(question);
  Answer answer;
  answer.fits = solution.found;
  report::Document& document = answer.document;
  document.kind = "memcalc.solve";
  document.headline.push_back(solution.sentence);
  if (!solution.more.empty()) document.headline.push_back(solution.more);
  if (options.output.format == report::Format::kJson) {  // people have read them in the headline
    document.facts = {{"model", question.model.name},
                      {"gpu", question.request.gpu_name},
                      {"for", options.unknown},
                      {"found", solution.found},
                      {"value", solution.value}};
  }
  document.tables.push_back(plans_table({solution.plan}, {0}));
  add_warnings(document, question.warnings);
  if (!idle.empty())
    add_warnings(document, {fmt::format("{} changes nothing here: it is what is solved for", idle)});
  add_warnings(document, solution.plan.warnings);
  if (options.formulas) document.tables.push_back(formulas_table(all_lines(solution.plan)));
  return answer;
}

}  // namespace mla::memcalc
