// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/hypotheses.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// An interval, or nothing where the planner has no number for it.
using Range = std::optional<std::pair<double, double>>;

bool inside(const Range& range, const LogNumber& logged) {
  return range && logged.value + logged.half_digit >= range->first &&
         logged.value - logged.half_digit <= range->second;
}

double gap_of(const Range& range, const LogNumber& logged) {
  if (!range || logged.value == 0) return 0;
  const double off = logged.value < range->first    ? logged.value - range->first
                     : logged.value > range->second ? logged.value - range->second
                                                    : 0;
  return off / logged.value;
}

std::string count_text(double value) {
  return std::floor(value) == value ? num(static_cast<std::int64_t>(value)) : fmt::format("{:.2f}", value);
}

/// A hypothesis at work on one log.
class Trial {
 public:
  Trial(const LogReading& log, const ModelConfig& model, const Hypothesis& hypothesis)
      : log_(log), model_(model), inputs_(hypothesis.inputs(model, log)) {
    for (int stage = 0; stage < inputs_.layout.pp; ++stage) {
      sets_.push_back(pool_geometry(inputs_, stage));
    }
    for (const LogNumber& number : log.numbers) {
      if (number.kind == LogKind::kBudget) budgets_.push_back(&number);
    }
  }

  /// What the planner makes of the number, trying each logged budget for those that follow from one.
  Explained judge(const LogNumber& logged) const {
    Explained result{.logged = logged, .how = {}};
    Range nearest;
    for (const Option& option : options(logged)) {
      if (!option.range) continue;
      const bool better = !result.planned || inside(option.range, logged) ||
                          std::abs(gap_of(option.range, logged)) < std::abs(gap_of(nearest, logged));
      if (!better) continue;
      nearest = option.range;
      result.planned = true;
      result.how = option.how;
      if (inside(option.range, logged)) break;
    }
    if (!result.planned) return result;
    result.low = nearest->first;
    result.high = nearest->second;
    result.matches = inside(nearest, logged);
    result.gap = gap_of(nearest, logged);
    return result;
  }

  [[nodiscard]] std::int64_t block() const { return sets_.front().block; }
  [[nodiscard]] std::size_t groups() const {
    return sets_.front().pools.empty() ? 0 : sets_.front().pools.front().groups.size();
  }
  /// GiB a rank that holds `tokens` tokens of this pool must have had.
  [[nodiscard]] double implied_gib(double tokens) const {
    const CachePool& pool = sets_.front().pools.front();
    const double per_token = static_cast<double>(pool.block_bytes) * static_cast<double>(groups()) /
                             static_cast<double>(block()) / inputs_.layout.dcp;
    return tokens * per_token / kGiB;
  }

 private:
  struct Option {
    Range range;
    std::string how;
  };

  /// Budgets by stage: the smallest of the ranks that name it; or, unlabelled, one for all.
  std::vector<std::vector<const LogNumber*>> budget_choices() const {
    const auto stages = static_cast<std::size_t>(inputs_.layout.pp);
    std::vector<std::vector<const LogNumber*>> choices;
    if (budgets_.empty()) return choices;
    std::vector<const LogNumber*> sorted = budgets_;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const LogNumber* a, const LogNumber* b) { return a->value < b->value; });
    if (stages > 1) {
      std::map<std::size_t, const LogNumber*> named;
      for (const LogNumber* budget : sorted) {
        for (std::size_t stage = 0; stage < stages; ++stage) {
          const std::string mark = fmt::format("PP{}", stage);
          const std::size_t at = budget->rank.find(mark);
          const bool whole = at != std::string::npos && (at + mark.size() == budget->rank.size() ||
                                                         budget->rank[at + mark.size()] == ' ');
          if (whole && !named.contains(stage)) named[stage] = budget;
        }
      }
      if (named.size() == stages) {
        std::vector<const LogNumber*> by_stage;
        for (const auto& [stage, budget] : named) by_stage.push_back(budget);
        choices.push_back(by_stage);
      } else if (budgets_.size() == stages) {
        choices.push_back(budgets_);
        choices.emplace_back(budgets_.rbegin(), budgets_.rend());
      }
    }
    for (const LogNumber* budget : sorted) choices.emplace_back(stages, budget);
    return choices;
  }

  /// A number of the pool at both ends of the budgets' rounding; the smallest stage decides.
  template <class Value>
  Range over_stages(const std::vector<const LogNumber*>& budgets, std::int64_t length, Value value) const {
    Range range;
    for (std::size_t stage = 0; stage < sets_.size(); ++stage) {
      const auto at = [&](double shift) {
        PoolSet set = sets_[stage];
        const double bytes =
            (budgets[stage]->value + shift * budgets[stage]->half_digit) * budgets[stage]->unit;
        fill(set, inputs_, static_cast<std::int64_t>(bytes), std::max<std::int64_t>(1, length));
        return static_cast<double>(value(set));
      };
      const double low = at(-1);
      const double high = at(1);
      range =
          range ? Range({std::min(range->first, low), std::min(range->second, high)}) : Range({low, high});
    }
    return range;
  }

  std::string budget_text(const std::vector<const LogNumber*>& budgets) const {
    std::string text;
    for (const LogNumber* budget : budgets) {
      const std::string one = fmt::format("{} GiB{}", budget->value,
                                          budget->rank.empty() ? "" : fmt::format(" of {}", budget->rank));
      if (text.find(one) == std::string::npos) text += (text.empty() ? "" : ", ") + one;
    }
    return text;
  }

  std::int64_t length_of(const LogNumber& logged) const {
    return logged.length > 0 ? logged.length : log_.max_length > 0 ? log_.max_length : model_.max_position;
  }

  std::vector<Option> options(const LogNumber& logged) const {
    switch (logged.kind) {
      case LogKind::kTokens:
      case LogKind::kBlocks:
      case LogKind::kConcurrency:
      case LogKind::kEstimate:
        return from_budgets(logged);
      case LogKind::kNeed:
        return need(logged);
      case LogKind::kCacheBytes:
      case LogKind::kKeyBytes:
      case LogKind::kValueBytes:
        return bytes(logged);
      case LogKind::kBudget:
      case LogKind::kWeights:
        return {};
    }
    return {};
  }

  std::vector<Option> from_budgets(const LogNumber& logged) const {
    std::vector<Option> found;
    const std::int64_t length = length_of(logged);
    for (const auto& budgets : budget_choices()) {
      Range range;
      switch (logged.kind) {
        case LogKind::kTokens:
          range = over_stages(budgets, length, [&](const PoolSet& set) {
            return tokens_of(inputs_, set, length, inputs_.engine.token_count);
          });
          break;
        case LogKind::kConcurrency:
          range = over_stages(budgets, length,
                              [&](const PoolSet& set) { return concurrency_of(inputs_, set, length); });
          break;
        case LogKind::kBlocks:
          range = over_stages(budgets, length, [](const PoolSet& set) {
            return set.pools.empty() ? std::int64_t{0} : set.pools.front().blocks;
          });
          break;
        default:
          range = over_stages(budgets, length, [&](PoolSet& set) {
            for (CachePool& pool : set.pools) pool.usable = pool.blocks;  // vLLM counts the null block here
            return longest_of(inputs_, set, length);
          });
          break;
      }
      found.push_back(
          {range, fmt::format("{}, {} B a block of {} tokens", budget_text(budgets),
                              sets_.front().pools.empty() ? std::string("0")
                                                          : num(sets_.front().pools.front().block_bytes),
                              num(block()))});
    }
    return found;
  }

  /// What one sequence needs: on the largest stage, or (a known fault of vLLM under pp) with all layers on
  /// one.
  std::vector<Option> need(const LogNumber& logged) const {
    const std::int64_t length = length_of(logged);
    std::vector<Option> found;
    const auto add = [&](double bytes, const std::string& how) {
      const double value = bytes / logged.unit;
      found.push_back({Range({value, value}), how});
    };
    double all = 0;
    for (std::size_t stage = 0; stage < sets_.size(); ++stage) {
      const auto bytes = static_cast<double>(sequence_bytes(inputs_, sets_[stage], length));
      all += bytes;
      add(bytes, sets_.size() == 1 ? fmt::format("{} tokens in blocks of {}", num(length), num(block()))
                                   : fmt::format("{} tokens on stage {}", num(length), stage));
    }
    if (sets_.size() > 1) {
      add(all,
          "all layers charged to one rank, as vLLM does under pipeline parallelism (vllm#34076): a stage "
          "needs less");
    }
    return found;
  }

  /// Bytes of the tokens that the same or a near line names.
  std::vector<Option> bytes(const LogNumber& logged) const {
    std::vector<Option> found;
    std::vector<double> lengths;
    for (const LogNumber& other : log_.numbers) {
      if (other.kind == LogKind::kTokens && std::abs(other.line - logged.line) <= 3)
        lengths.push_back(other.value);
    }
    if (lengths.empty() && log_.max_length > 0) lengths.push_back(static_cast<double>(log_.max_length));
    for (const double tokens : lengths) {
      const std::int64_t spare = std::int64_t{inputs_.engine.spare_blocks} * inputs_.block;
      double keys = 0;
      double values = 0;
      for (const LayerCache& layer : model_.layers) {
        if (layer.mtp && !inputs_.with_mtp) continue;
        for (const CachePart& part :
             cache_parts(model_, layer, inputs_.format, inputs_.engine, inputs_.layout.tp)) {
          if (part.kind == PartKind::kState) continue;
          double kept = tokens + static_cast<double>(spare);
          if (part.window > 0) kept = std::min(kept, static_cast<double>(window_cells(part.window)));
          keys += kept * static_cast<double>(part.k_bytes) / part.tokens_per_entry;
          values += kept * static_cast<double>(part.v_bytes) / part.tokens_per_entry;
        }
      }
      const double wanted = logged.kind == LogKind::kKeyBytes     ? keys
                            : logged.kind == LogKind::kValueBytes ? values
                                                                  : keys + values;
      const double value = wanted / logged.unit;
      found.push_back(
          {Range({value, value}),
           fmt::format("{} tokens{}", count_text(tokens),
                       spare > 0 ? fmt::format(" and a spare page of {}", spare) : std::string())});
    }
    return found;
  }

  std::int64_t window_cells(std::int64_t window) const {
    constexpr std::int64_t kMicroBatch = 512;
    return inputs_.engine.window == WindowRule::kWithBatch ? round_up(window + kMicroBatch, 256) : window;
  }

  const LogReading& log_;
  const ModelConfig& model_;
  PoolInputs inputs_;
  std::vector<PoolSet> sets_;
  std::vector<const LogNumber*> budgets_;
};

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
  for (const auto& [name, scheme] : schemes) {
    for (int stage = 0; stage < best.layout.pp; ++stage) {
      for (const int ep : {0, best.layout.tp * best.layout.dp}) {
        Layout layout = best.layout;
        layout.ep = model.moe ? ep : 0;
        const auto bytes = static_cast<double>(
            weights_on_rank(model, scheme, layout, stage, best.engine, best.with_mtp).bytes);
        if (nearest >= 0 && std::abs(bytes - logged) >= std::abs(nearest - logged)) continue;
        nearest = bytes;
        result.how = fmt::format("weights {}{}", name,
                                 best.layout.pp > 1 ? fmt::format(", stage {}", stage) : std::string());
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
    if (best.engine.token_count == TokenCount::kConcurrency) {
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
                    num(trial.block())));
  } else {
    out.sentences.push_back(
        fmt::format("{} tokens are {:.2f}x of {}, but {:.2f}x is logged: the two lines belong to "
                    "different ranks or runs",
                    count_text(tokens->value), tokens->value / static_cast<double>(concurrency->length),
                    num(concurrency->length), concurrency->value));
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
    if (off && !budgets.empty()) {
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

}  // namespace

Explanation explain(const LogReading& log, const ModelConfig& model) {
  Explanation out;
  std::optional<Hypothesis> best;
  Outcome outcome;
  for (int breadth = 0; breadth < 3; ++breadth) {
    out.others.clear();
    for (const Hypothesis& hypothesis : hypotheses(log, model, breadth)) {
      Outcome one = run(log, model, hypothesis);
      if (!best || one.matches > outcome.matches) {
        best = hypothesis;
        outcome = std::move(one);
        out.others.clear();
      } else if (one.matches == outcome.matches && outcome.matches > 0 && hypothesis.cost <= best->cost + 2) {
        out.others.push_back(to_text(hypothesis));
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
  if (planned == 0) {
    out.sentences.push_back(
        "the numbers found do not follow from each other: a line with tokens, blocks or bytes needs "
        "the one with the memory or the context it came from");
  } else if (matches == planned) {
    out.sentences.push_back(fmt::format("all {} numbers follow from {}", planned, out.hypothesis));
  } else {
    out.sentences.push_back(fmt::format("{} of {} numbers follow from {}", matches, planned, out.hypothesis));
  }
  const Trial trial(log, model, *best);
  explain_contradictions(log, *best, trial, out);
  explain_ranks(log, model, *best, trial, out);
  return out;
}

std::vector<std::string> model_names(const std::string& logged) {
  std::string name = text::to_lower(logged);
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
