// SPDX-License-Identifier: Apache-2.0
#include "plan/explain_sentences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/format_rules.hpp"
#include "plan/trial.hpp"

namespace mla::capacity {
namespace {

/// "tokens < maximum length, and yet more than one sequence fits" and its like.
void explain_contradictions(const LogReading& log, const Hypothesis& best, const Trial& trial,
                            Explanation& out) {
  const LogNumber* tokens = first_of(log, LogKind::kTokens);
  const LogNumber* concurrency = first_of(log, LogKind::kConcurrency);
  if (tokens == nullptr || concurrency == nullptr || concurrency->length == 0) return;
  const double by_length = concurrency->value * static_cast<double>(concurrency->length);
  const double slack = concurrency->half_digit * static_cast<double>(concurrency->length);
  if (std::abs(tokens->value - by_length) <= slack + 1) {
    constexpr double kOldBlock = 16;  // of engines that log blocks x their size
    const double blocks = tokens->value / static_cast<double>(trial.block());
    const bool other_count =
        !log.version.empty() || std::floor(tokens->value / kOldBlock) * kOldBlock != tokens->value;
    if (best.engine.token_count == TokenCount::kConcurrency && std::floor(blocks) != blocks && other_count) {
      out.sentences.push_back(
          fmt::format("the {} tokens are {:.2f} x {} tokens: this version logs concurrency x maximum "
                      "length, so the number changes with the maximum length, not only with memory",
                      count_text(tokens->value), concurrency->value, num(concurrency->length)));
    }
    return;
  }
  if (trial.groups() > 1) {
    out.sentences.push_back(
        fmt::format("{} tokens and {:.2f}x of {} tokens do not contradict each other: the tokens are blocks "
                    "// {} groups x {}, as if "
                    "every layer kept every token; the concurrency is blocks / blocks one sequence needs, "
                    "where windows and states "
                    "need few",
                    count_text(tokens->value), concurrency->value, num(concurrency->length), trial.groups(),
                    num(trial.smallest_block())));
  } else {
    out.sentences.push_back(
        fmt::format("{} tokens are {:.2f}x of {}, but {:.2f}x is logged: the two lines belong to "
                    "different ranks or runs",
                    count_text(tokens->value), tokens->value / static_cast<double>(concurrency->length),
                    num(concurrency->length), concurrency->value));
  }
}

/// The known fault of the out-of-memory message, and what each stage really needs.
void explain_fault(const Hypothesis& best, const Trial& trial, Explanation& out) {
  for (const Explained& number : out.numbers) {
    if (number.logged.kind != LogKind::kNeed || number.how != kAllLayers) continue;
    std::string stages;
    for (int stage = 0; stage < best.layout.pp; ++stage) {
      stages += fmt::format("{}{:.2f} GiB", stages.empty() ? "" : " and ",
                            trial.stage_need_gib(stage, number.logged));
    }
    out.sentences.push_back(
        fmt::format("the message charges all layers to one rank (vllm#34076): the stages really need "
                    "{}",
                    stages));
    return;
  }
}

void explain_ranks(const LogReading& log, const ModelConfig& model, const Hypothesis& best,
                   const Trial& trial, Explanation& out) {
  std::vector<double> budgets;
  for (const LogNumber& number : log.numbers) {
    if (number.kind == LogKind::kBudget) budgets.push_back(number.value);
  }
  if (budgets.size() > 1) {
    const auto [low, high] = std::minmax_element(budgets.begin(), budgets.end());
    if (*low != *high) {
      out.sentences.push_back(
          fmt::format("each rank logs its own memory, {:.2f} to {:.2f} GiB here; {}", *low, *high,
                      best.layout.pp > 1 ? "stages hold different layers, and the smallest pool "
                                           "decides for all"
                                         : "the smallest decides for all"));
    }
  }
  constexpr double kNear = 0.05;
  for (const Explained& number : out.numbers) {
    const bool off = number.logged.kind == LogKind::kTokens && number.planned && !number.matches &&
                     std::abs(number.gap) < kNear;
    const auto step = static_cast<double>(trial.smallest_block() * best.layout.dcp);
    const bool no_blocks =
        best.engine.name == "vllm" && std::floor(number.logged.value / step) * step != number.logged.value;
    if (off && !budgets.empty() && no_blocks && log.max_length == 0) {
      out.sentences.push_back(fmt::format(
          "{} tokens are no whole blocks of {}: this version logs concurrency x maximum length, and the log "
          "does not say the maximum length",
          count_text(number.logged.value), num(trial.smallest_block())));
    } else if (off && !budgets.empty()) {
      const double tokens_gib = trial.implied_gib(number.logged.value);
      const double least = *std::ranges::min_element(budgets);
      if (std::abs(tokens_gib / least - 1) >= kNear) continue;
      out.sentences.push_back(
          fmt::format("{} tokens are {:.3f} GiB a rank, {:.1f} % {} the {:.2f} GiB logged: probably another "
                      "rank, whose line is not "
                      "here, had the least",
                      count_text(number.logged.value), tokens_gib, 100 * std::abs(tokens_gib / least - 1),
                      tokens_gib < least ? "below" : "above", least));
    }
  }
  if (best.layout.tp > 1 && best.layout.dcp < best.layout.tp && caches_latent(model, best.engine)) {
    out.sentences.push_back(
        fmt::format("all numbers are per rank: the {} tp ranks keep the same latent rows, so the "
                    "replica holds what one of them holds",
                    best.layout.tp));
  }
}

/// The arithmetic behind the numbers: what a block or token takes, and what the engine calls tokens.
void explain_arithmetic(const LogReading& log, const ModelConfig& model, const Hypothesis& best,
                        const Trial& trial, Explanation& out) {
  const bool matches = std::any_of(out.numbers.begin(), out.numbers.end(), [](const Explained& number) {
    return number.matches && number.logged.kind != LogKind::kWeights;
  });
  if (!matches) return;
  std::string formula;
  for (const Line& line : cache_cost(model, best.format, best.engine, best.layout.tp, best.with_mtp).lines) {
    formula += (formula.empty() ? "" : " + ") + line.formula;
  }
  if (best.engine.pools != PoolKind::kSharedBlocks) {
    out.sentences.push_back(fmt::format("on a rank a token takes {}", formula));
    return;
  }
  std::string text =
      fmt::format("a block of {} tokens takes {} B on a rank{}: a token takes {}", num(trial.block()),
                  num(trial.block_bytes()), best.layout.pp > 1 ? " of the first stage" : "", formula);
  if (first_of(log, LogKind::kTokens) != nullptr) {
    if (best.engine.token_count == TokenCount::kConcurrency) {
      text += "; the engine logs int(concurrency x maximum length) as tokens";
    } else if (trial.groups() > 1) {
      text += fmt::format("; the engine logs blocks // {} groups x {} as tokens", trial.groups(),
                          num(trial.smallest_block()));
    } else {
      text += fmt::format("; the engine logs blocks x {}{} as tokens", num(trial.block()),
                          best.layout.dcp > 1 ? fmt::format(" x dcp {}", best.layout.dcp) : "");
    }
  }
  out.sentences.push_back(std::move(text));
}

/// What a number alone would mean under the usual cache formats.
void explain_alone(const LogReading& log, const ModelConfig& model, const Hypothesis& best,
                   Explanation& out) {
  const LogNumber* number = first_of(log, LogKind::kTokens);
  if (number == nullptr) number = first_of(log, LogKind::kBudget);
  if (number == nullptr || best.engine.pools == PoolKind::kCells) return;
  const bool tokens = number->kind == LogKind::kTokens;
  std::string text;
  std::string counted;  // what "tokens" are where layers keep different shares of a sequence
  for (const char* format : {"bf16", "fp8", "fp8_ds_mla"}) {
    Hypothesis other = best;
    other.format = find_kv_format(format);
    // Compressed entries have one fp8 layout, whatever it is called.
    if (other.format.name == "fp8_ds_mla" && model.count(AttentionKind::kCompressed) > 0) continue;
    try {
      validate(other.format, model, best.engine);  // only what a plan would take too
      const Trial trial(log, model, other);
      if (!(trial.implied_gib(1) > 0)) continue;
      if (trial.groups() > 1) {
        counted = fmt::format(
            "; tokens here are blocks // {} groups x block size, as if every layer kept every token: not "
            "what "
            "sequences of a given length take",
            trial.groups());
      }
      const std::string one =
          tokens ? fmt::format("{:.2f} GiB", trial.implied_gib(number->value))
                 : fmt::format("{} tokens",
                               num(static_cast<std::int64_t>(number->value * number->unit /
                                                             (trial.implied_gib(1) * 1024 * 1024 * 1024))));
      text += fmt::format("{}{} as {}", text.empty() ? "" : ", ", one, format);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;  // the model has no such layout
    }
  }
  if (text.empty()) return;
  const std::string what = tokens ? fmt::format("{} tokens", count_text(number->value))
                                  : fmt::format("{:.2f} GiB", number->value * number->unit / 1073741824.0);
  out.sentences.push_back(fmt::format("on a rank of {}, {} {} {}{}", to_text(best.layout), what,
                                      tokens ? "are" : "hold", text, counted));
}

/// A cache format that the log asks for and the engine has not for such a model; a fork of it may.
void explain_refused_format(const LogReading& log, const ModelConfig& model, const Hypothesis& best,
                            Explanation& out) {
  const std::string asked = text::to_lower(log.cache_dtype);
  if (asked.empty() || asked == "auto") return;
  try {
    validate(find_kv_format(asked), model, best.engine);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    out.sentences.emplace_back(error.what());
  }
}

/// No memory for a cache at all, and what units mean.
void explain_lines(const LogReading& log, Explanation& out) {
  if (const LogNumber* deficit = first_of(log, LogKind::kDeficit)) {
    out.sentences.push_back(fmt::format(
        "weights and activations exceed the engine's share of the GPU by {} GiB before any cache: "
        "raise the memory utilization, shrink the prefill chunk, or use more GPUs",
        deficit->value));
  }
  const bool gigabytes = std::any_of(log.numbers.begin(), log.numbers.end(), [](const LogNumber& number) {
    return number.unit > 1 && number.text.find(" GB") != std::string::npos;
  });
  for (const Explained& number : out.numbers) {
    if (number.how.find(kOtherLayers) == std::string::npos) continue;
    out.sentences.push_back(
        fmt::format("line {} does not speak of this model: {}", number.logged.line, number.how));
    break;
  }
  for (const Explained& number : out.numbers) {
    if (!number.matches || number.how.find(kNoIndexKeys) == std::string::npos) continue;
    out.sentences.emplace_back("the line leaves the indexer's keys out: the pool takes more than it says");
    break;
  }
  if (log.other_start > 0) {
    out.sentences.push_back(fmt::format(
        "line {} names another version than the lines before it: two start-ups are mixed here, and their "
        "numbers do not follow from each other",
        log.other_start));
  }
  if (log.profiling_line > 0) {
    out.sentences.push_back(
        fmt::format("the pool that line {} speaks of was for measuring memory alone, and is left out",
                    log.profiling_line));
  }
  if (gigabytes) out.sentences.emplace_back("GB in this log are GiB, 2^30 bytes");
}

}  // namespace

const LogNumber* first_of(const LogReading& log, LogKind kind) {
  const auto found = std::find_if(log.numbers.begin(), log.numbers.end(),
                                  [&](const LogNumber& number) { return number.kind == kind; });
  return found == log.numbers.end() ? nullptr : &*found;
}

void add_sentences(const LogReading& log, const ModelConfig& model, const Hypothesis& best, bool follows,
                   Explanation& out) {
  if (!follows) explain_alone(log, model, best, out);
  const Trial trial(log, model, best);
  if (follows) explain_arithmetic(log, model, best, trial, out);
  explain_lines(log, out);
  explain_refused_format(log, model, best, out);
  explain_contradictions(log, best, trial, out);
  explain_fault(best, trial, out);
  explain_ranks(log, model, best, trial, out);
}

}  // namespace mla::capacity
