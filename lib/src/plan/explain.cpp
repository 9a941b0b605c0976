// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/hypotheses.hpp"
#include "plan/trial.hpp"
#include "plan/weight_padding.hpp"

namespace mla::capacity {
namespace {

struct Outcome {
  std::vector<Explained> numbers;
  int matches = 0, planned = 0;
};

Outcome run(const LogReading& log, const ModelConfig& model, const Hypothesis& hypothesis) {
  const Trial trial(log, model, hypothesis);
  Outcome outcome;
  for (const LogNumber& number : log.numbers) {
    Explained result = trial.judge(number);
    outcome.planned += result.planned ? 1 : 0;
    outcome.matches += result.matches ? 1 : 0;
    outcome.numbers.push_back(std::move(result));
  }
  return outcome;
}

/// Weights: which storage comes nearest on any stage.
void explain_weights(const ModelConfig& model, const Hypothesis& best, Explained& result) {
  const double logged = result.logged.value * result.logged.unit;
  std::vector<std::pair<std::string, WeightScheme>> schemes{{"as the config says", scheme_of(model)}};
  for (const WeightFormat& format : all_weight_formats())
    schemes.emplace_back(format.name, uniform_scheme(format));
  double nearest = -1;
  const auto consider = [&](double bytes, int stage, const std::string& how) {
    if (nearest >= 0 && std::abs(bytes - logged) >= std::abs(nearest - logged)) return;
    nearest = bytes;
    result.how = how + (best.layout.pp > 1 ? fmt::format(", stage {}", stage) : std::string());
  };
  for (const auto& [name, scheme] : schemes) {
    for (int stage = 0; stage < best.layout.pp; ++stage) {
      for (const int ep : {best.layout.ep, 0, best.layout.tp * best.layout.dp}) {
        Layout layout = best.layout;
        layout.ep = model.moe ? ep : 0;
        const WeightPlan plan = weights_on_rank(model, scheme, layout, stage, best.engine, best.with_mtp);
        consider(static_cast<double>(plan.bytes), stage, fmt::format("weights {}", name));
        if (const auto padded = padded_experts(model, scheme, layout, plan)) {
          consider(static_cast<double>(plan.bytes + padded->extra_bytes), stage,
                   fmt::format("weights {}, experts padded to {} x {} by Marlin's kernels", name,
                               num(padded->intermediate), num(padded->hidden)));
        }
      }
    }
  }
  constexpr double kTolerance = 0.005;
  result.planned = nearest >= 0;
  result.low = result.high = nearest / result.logged.unit;
  result.gap = logged > 0 ? (logged - nearest) / logged : 0;
  result.matches = std::abs(result.gap) <= kTolerance;
  if (!result.matches && result.gap > 0 && result.gap < 0.15) result.how += "; 4-bit kernels pad matrices";
}

const LogNumber* first(const LogReading& log, LogKind kind) {
  const auto found = std::find_if(log.numbers.begin(), log.numbers.end(),
                                  [&](const LogNumber& number) { return number.kind == kind; });
  return found == log.numbers.end() ? nullptr : &*found;
}

/// "tokens < maximum length, and yet more than one sequence fits" and its like.
void explain_contradictions(const LogReading& log, const Hypothesis& best, const Trial& trial,
                            Explanation& out) {
  const LogNumber* tokens = first(log, LogKind::kTokens);
  const LogNumber* concurrency = first(log, LogKind::kConcurrency);
  if (tokens == nullptr || concurrency == nullptr || concurrency->length == 0) return;
  const double by_length = concurrency->value * static_cast<double>(concurrency->length);
  const double slack = concurrency->half_digit * static_cast<double>(concurrency->length);
  if (std::abs(tokens->value - by_length) <= slack + 1) {
    const double blocks = tokens->value / static_cast<double>(trial.block());
    if (best.engine.token_count == TokenCount::kConcurrency && std::floor(blocks) != blocks) {
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
      out.sentences.push_back(fmt::format("each rank logs its own memory, {} to {} GiB here; {}", *low, *high,
                                          best.layout.pp > 1
                                              ? "stages hold different layers, and the smallest pool "
                                                "decides for all"
                                              : "the smallest decides for all"));
    }
  }
  for (const Explained& number : out.numbers) {
    const bool off = number.logged.kind == LogKind::kTokens && number.planned && !number.matches &&
                     std::abs(number.gap) < 0.05;
    const auto step = static_cast<double>(trial.smallest_block() * best.layout.dcp);
    const bool no_blocks =
        best.engine.name == "vllm" && std::floor(number.logged.value / step) * step != number.logged.value;
    if (off && !budgets.empty() && no_blocks && log.max_length == 0) {
      out.sentences.push_back(fmt::format(
          "{} tokens are no whole blocks of {}: this version logs concurrency x maximum length, and the log "
          "does not say the maximum length",
          count_text(number.logged.value), num(trial.smallest_block())));
    } else if (off && !budgets.empty()) {
      out.sentences.push_back(
          fmt::format("{} tokens are {:.3f} GiB a rank, {:.1f} % {} the logged memory: probably another "
                      "rank, whose line is not "
                      "here, had the least",
                      count_text(number.logged.value), trial.implied_gib(number.logged.value),
                      100 * std::abs(number.gap), number.gap < 0 ? "below" : "above"));
    }
  }
  if (best.layout.tp > 1 && best.layout.dcp < best.layout.tp && model.count(AttentionKind::kMla) > 0) {
    out.sentences.push_back(
        fmt::format("all numbers are per rank: the {} tp ranks keep the same latent rows, so the "
                    "replica holds what one of them holds",
                    best.layout.tp));
  }
}

/// What a number alone would mean under the usual cache formats.
void explain_alone(const LogReading& log, const ModelConfig& model, const Hypothesis& best,
                   Explanation& out) {
  const LogNumber* number = first(log, LogKind::kTokens);
  if (number == nullptr) number = first(log, LogKind::kBudget);
  if (number == nullptr || best.engine.pools == PoolKind::kCells) return;
  const bool tokens = number->kind == LogKind::kTokens;
  std::string text;
  for (const char* format : {"bf16", "fp8", "fp8_ds_mla"}) {
    Hypothesis other = best;
    other.format = find_kv_format(format);
    try {
      const Trial trial(log, model, other);
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
  out.sentences.push_back(
      fmt::format("on a rank of {}, {} {} {}", to_text(best.layout), what, tokens ? "are" : "hold", text));
}

/// No memory for a cache at all, and what units mean.
void explain_lines(const LogReading& log, Explanation& out) {
  if (const LogNumber* deficit = first(log, LogKind::kDeficit)) {
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
  if (gigabytes) out.sentences.emplace_back("GB in this log are GiB, 2^30 bytes");
}

}  // namespace

Explanation explain(const LogReading& log, const ModelConfig& model) {
  Explanation out;
  std::optional<Hypothesis> best;
  Outcome outcome;
  for (int breadth = 0; breadth < 3; ++breadth) {
    out.others.clear();
    for (const Hypothesis& hypothesis : hypotheses(log, model, breadth)) {
      const bool settled = best && outcome.matches > 0 && outcome.matches == outcome.planned;
      if (settled && hypothesis.cost > best->cost + 2) break;  // they are sorted: nothing simpler follows
      Outcome one = run(log, model, hypothesis);
      if (!best || one.matches > outcome.matches) {
        best = hypothesis;
        outcome = std::move(one);
        out.others.clear();
      } else if (one.matches == outcome.matches && outcome.matches > 0 && hypothesis.cost <= best->cost + 2) {
        const std::string text = to_text(hypothesis);
        if (std::find(out.others.begin(), out.others.end(), text) == out.others.end())
          out.others.push_back(text);
      }
    }
    if (best && outcome.matches == outcome.planned) break;
  }
  if (!best) {
    out.sentences.push_back(
        fmt::format("no cache layout that {} can have agrees with the engine", model.title));
    return out;
  }
  out.hypothesis = to_text(*best);
  std::erase(out.others, out.hypothesis);
  out.numbers = std::move(outcome.numbers);
  for (Explained& number : out.numbers) {
    if (number.logged.kind == LogKind::kWeights) explain_weights(model, *best, number);
  }
  int planned = 0;
  int matches = 0;
  for (const Explained& number : out.numbers) {
    planned += number.planned ? 1 : 0;
    matches += number.matches ? 1 : 0;
  }
  out.explained = planned > 0 && matches == planned;
  if (planned == 0 && first(log, LogKind::kDeficit) != nullptr) {
    // said below
  } else if (planned == 0) {
    out.sentences.push_back(
        "the numbers found do not follow from each other: a line with tokens, blocks or bytes needs "
        "the one with the memory or the context it came from");
  } else if (matches == planned) {
    out.sentences.push_back(planned == 1
                                ? fmt::format("the number follows from {}", out.hypothesis)
                                : fmt::format("all {} numbers follow from {}", planned, out.hypothesis));
  } else {
    out.sentences.push_back(fmt::format("{} of {} numbers follow from {}", matches, planned, out.hypothesis));
  }
  if (planned == 0) explain_alone(log, model, *best, out);
  const Trial trial(log, model, *best);
  explain_lines(log, out);
  explain_contradictions(log, *best, trial, out);
  explain_fault(*best, trial, out);
  explain_ranks(log, model, *best, trial, out);
  return out;
}

std::vector<std::string> model_names(const std::string& logged) {
  std::string name = text::to_lower(logged);
  // The Hub's cache: .../models--deepseek-ai--DeepSeek-V3/snapshots/<commit>
  constexpr std::string_view kHub = "models--";
  if (const std::size_t hub = name.find(kHub); hub != std::string::npos) {
    name = name.substr(hub + kHub.size());
    name = name.substr(0, name.find('/'));
    if (const std::size_t organisation = name.find("--"); organisation != std::string::npos)
      name = name.substr(organisation + 2);
  }
  while (!name.empty() && name.back() == '/') name.pop_back();
  const std::size_t slash = name.rfind('/');
  if (slash != std::string::npos) name = name.substr(slash + 1);
  if (const std::size_t dot = name.rfind(".gguf"); dot != std::string::npos) name = name.substr(0, dot);
  std::vector<std::string> names;
  while (!name.empty()) {
    names.push_back(name);
    const std::size_t cut = name.find_last_of("-_ ");
    if (cut == std::string::npos) break;
    name = name.substr(0, cut);
  }
  return names;
}

}  // namespace mla::capacity
