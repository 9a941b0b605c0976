// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/explain_sentences.hpp"
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
  constexpr double kTolerance = 0.005;
  for (const auto& [name, scheme] : schemes) {
    // What the config says comes first: no other storage is looked for where that matches.
    if (nearest >= 0 && std::abs(nearest - logged) <= kTolerance * logged) break;
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
  result.planned = nearest >= 0;
  result.low = result.high = nearest / result.logged.unit;
  result.gap = logged > 0 ? (logged - nearest) / logged : 0;
  result.matches = std::abs(result.gap) <= kTolerance;
  if (!result.matches && result.gap > 0 && result.gap < 0.15) result.how += "; 4-bit kernels pad matrices";
}

/// Whether `format` is one that the log's own word may mean: "fp8" is fp8_ds_mla too where the model has an index.
/// True where the log says nothing.
bool as_asked(const LogReading& log, const KvFormat& format) {
  if (log.cache_dtype.empty() || text::to_lower(log.cache_dtype) == "auto") return true;
  try {
    const std::string_view asked = find_kv_format(log.cache_dtype).name;
    return format.name.starts_with(asked) || asked.starts_with(format.name);
  } catch (const Error&) {
    return true;  // a word that names no format here
  }
}

/// The simplest hypothesis in the format that the log asks for, other layouts included, that explains every number;
/// empty if none does.
std::optional<Hypothesis> explains_as_asked(const LogReading& log, const ModelConfig& model) {
  for (const Hypothesis& hypothesis : hypotheses(log, model, 2)) {
    if (!as_asked(log, hypothesis.format)) continue;
    const Outcome one = run(log, model, hypothesis);
    if (one.matches > 0 && one.matches == one.planned) return hypothesis;
  }
  return std::nullopt;
}

/// Whether no number of bytes is there: counts only follow from each other, whatever a token takes.
bool only_counts(const LogReading& log, const Hypothesis& best) {
  if (best.engine.pools == PoolKind::kCells) return false;
  return std::ranges::all_of(log.numbers, [](const LogNumber& number) {
    return number.kind == LogKind::kTokens || number.kind == LogKind::kBlocks ||
           number.kind == LogKind::kConcurrency || number.kind == LogKind::kEstimate;
  });
}

/// A request longer than the model can read: another model's log, or a mistake of whoever started the engine.
void add_too_long(const LogReading& log, const ModelConfig& model, Explanation& out) {
  if (log.engine == "llama.cpp" || log.engine == "ik_llama.cpp")
    return;  // its context is all sequences' together
  std::int64_t length = log.max_length;
  for (const LogNumber& number : log.numbers) {
    if (number.kind == LogKind::kConcurrency) length = std::max(length, number.length);
  }
  if (model.max_position <= 0 || length <= model.max_position) return;
  out.sentences.push_back(
      fmt::format("{} tokens a request exceed the {} that {} can have: another model, or a raised maximum",
                  num(length), num(model.max_position), model.title));
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
  bool contradicts = !as_asked(log, best->format) && outcome.matches > 0 &&
                     outcome.matches == outcome.planned && !only_counts(log, *best);
  if (contradicts) {  // a layout that the log does not say explains more than a format that it denies
    if (const std::optional<Hypothesis> other = explains_as_asked(log, model)) {
      best = other;
      outcome = run(log, model, *best);
      contradicts = false;
    }
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
  out.explained = planned > 0 && matches == planned && !contradicts;
  const bool tested_nothing = planned > 0 && matches == planned && only_counts(log, *best);
  if (tested_nothing) {
    out.explained = false;
    out.hypothesis = "not determined";
    out.others.clear();
    out.sentences.emplace_back(
        "only the ratio of tokens or blocks to concurrency could be checked, and it holds for any model: "
        "cache "
        "format, layout and model are not determined; a line with GiB would");
    add_too_long(log, model, out);
    add_sentences(log, model, *best, false, out);
    return out;
  }
  if (contradicts) {
    out.sentences.push_back(fmt::format("cache format {} was asked for, but the pool is {}-sized",
                                        log.cache_dtype, best->format.name));
  }
  if (planned == 0 && first_of(log, LogKind::kDeficit) != nullptr) {
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
  add_too_long(log, model, out);
  add_sentences(log, model, *best, planned > 0, out);
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
