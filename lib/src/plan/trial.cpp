// SPDX-License-Identifier: Apache-2.0
#include "plan/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

using Range = Trial::Range;

bool inside(const Range& range, const LogNumber& logged) {
  return range && logged.value + logged.half_digit >= range->first &&
         logged.value - logged.half_digit <= range->second;
}

/// "PP1" of "PP1 TP3"; empty without one.
std::string_view stage_mark(const LogNumber& number) {
  const std::string_view rank = number.rank;
  const std::size_t at = rank.find("PP");
  if (at == std::string_view::npos) return {};
  return rank.substr(at, rank.find(' ', at) - at);
}

/// The budgets that may decide, in the log's order: of many different ones of a stage the least, since the smallest rank
/// does, and the largest.
std::vector<const LogNumber*> deciding_budgets(const LogReading& log) {
  constexpr std::size_t kStages = 64;
  constexpr std::size_t kOfStage = 8;
  std::map<std::string_view, std::vector<const LogNumber*>> by_stage;
  for (const LogNumber& number : log.numbers) {
    if (number.kind != LogKind::kBudget) continue;
    if (by_stage.size() >= kStages && !by_stage.contains(stage_mark(number))) continue;
    std::vector<const LogNumber*>& budgets = by_stage[stage_mark(number)];
    const auto bytes = [](const LogNumber* one) { return one->value * one->unit; };
    const auto at = std::ranges::lower_bound(budgets, bytes(&number), {}, bytes);
    if (at != budgets.end() && bytes(*at) == bytes(&number)) continue;
    budgets.insert(at, &number);
    if (budgets.size() > kOfStage) budgets.erase(budgets.end() - 2);
  }
  std::vector<const LogNumber*> all;
  for (const auto& [stage, budgets] : by_stage) all.insert(all.end(), budgets.begin(), budgets.end());
  std::ranges::sort(all);  // they lie in one vector
  return all;
}

double gap_of(const Range& range, const LogNumber& logged) {
  if (!range || logged.value == 0) return 0;
  const double off = logged.value < range->first    ? logged.value - range->first
                     : logged.value > range->second ? logged.value - range->second
                                                    : 0;
  return off / logged.value;
}

}  // namespace

std::string count_text(double value) {
  return std::floor(value) == value ? num(static_cast<std::int64_t>(value)) : fmt::format("{:.2f}", value);
}

Trial::Trial(const LogReading& log, const ModelConfig& model, const Hypothesis& hypothesis, Say say)
    : log_(log),
      model_(model),
      say_(say),
      inputs_(hypothesis.inputs(model, log)),
      sets_(pool_geometries(inputs_)),
      budgets_(deciding_budgets(log)),
      choices_(budget_choices()) {}

std::int64_t Trial::work() const {
  const auto stages = std::ssize(sets_);
  const auto pools = std::ssize(sets_.front().pools);
  return stages * (std::ssize(model_.layers) +
                   std::ssize(log_.numbers) * (1 + std::ssize(choices_)) * std::max<std::int64_t>(1, pools));
}

/// What the planner makes of the number, trying each logged budget for those that follow from one.
Explained Trial::judge(const LogNumber& logged) const {
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

std::int64_t Trial::block() const {
  return sets_.front().block;
}
std::int64_t Trial::smallest_block() const {
  std::int64_t smallest = block();
  if (sets_.front().pools.empty()) return smallest;
  for (const CacheGroup& group : sets_.front().pools.front().groups) {
    if (group.kind != GroupKind::kState) smallest = std::min(smallest, group.block);
  }
  return smallest;
}
std::int64_t Trial::block_bytes() const {
  std::int64_t bytes = 0;
  for (const CachePool& pool : sets_.front().pools) bytes = plus(bytes, pool.block_bytes);
  return bytes;
}
std::size_t Trial::groups() const {
  return sets_.front().pools.empty() ? 0 : sets_.front().pools.front().groups.size();
}
/// GiB a rank that holds `tokens` tokens of this pool must have had.
double Trial::implied_gib(double tokens) const {
  double per_token = 0;
  const auto& pools = sets_.front().pools;
  for (const CachePool& pool : pools) {
    const auto grows = std::find_if(pool.groups.begin(), pool.groups.end(), [](const CacheGroup& group) {
      return group.kind != GroupKind::kState && group.block > 0;
    });
    if (grows == pool.groups.end()) continue;
    const std::int64_t held = pools.size() == 1 ? smallest_block() : grows->block;
    per_token += static_cast<double>(pool.block_bytes) * static_cast<double>(pool.groups.size()) /
                 static_cast<double>(held) / inputs_.layout.dcp;
  }
  return tokens * per_token / kGiB;
}

double Trial::stage_need_gib(int stage, const LogNumber& logged) const {
  const PoolSet& set = sets_[static_cast<std::size_t>(stage)];
  return static_cast<double>(sequence_bytes(inputs_, set, length_of(logged))) / kGiB;
}

/// Budgets by stage: the smallest of the ranks that name it; or, unlabelled, one for all.
std::vector<Trial::Budgets> Trial::budget_choices() const {
  const auto stages = static_cast<std::size_t>(inputs_.layout.pp);
  std::vector<Budgets> choices;
  if (budgets_.empty()) return choices;
  Budgets sorted = budgets_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const LogNumber* a, const LogNumber* b) { return a->value < b->value; });
  if (stages > 1) {
    std::map<std::size_t, const LogNumber*> named;
    for (const LogNumber* budget : sorted) {
      for (std::size_t stage = 0; stage < stages; ++stage) {
        const std::string mark = fmt::format("PP{}", stage);
        const std::size_t at = budget->rank.find(mark);
        const bool whole = at != std::string::npos &&
                           (at + mark.size() == budget->rank.size() || budget->rank[at + mark.size()] == ' ');
        if (whole && !named.contains(stage)) named[stage] = budget;
      }
    }
    if (named.size() == stages) {
      Budgets by_stage;
      for (const auto& [stage, budget] : named) by_stage.push_back(budget);
      choices.push_back(by_stage);
    } else if (budgets_.size() == stages) {
      choices.push_back(budgets_);
      choices.emplace_back(budgets_.rbegin(), budgets_.rend());
    }
  }
  constexpr std::size_t kMostAlone = 16;
  for (const LogNumber* budget : sorted) {
    if (choices.size() >= kMostAlone) break;
    choices.emplace_back(stages, budget);
  }
  return choices;
}

/// A number of the pool at both ends of the budgets' rounding; the smallest stage decides.
template <class Value>
Trial::Range Trial::over_stages(const Budgets& budgets, std::int64_t length, Value value) const {
  Range range;
  for (std::size_t stage = 0; stage < sets_.size(); ++stage) {
    const auto at = [&](double shift) {
      PoolSet set = sets_[stage];
      const double bytes = (budgets[stage]->value + shift * budgets[stage]->half_digit) *
                           budgets[stage]->unit * share_of(*budgets[stage]);
      fill(set, inputs_, static_cast<std::int64_t>(bytes), std::max<std::int64_t>(1, length));
      return static_cast<double>(value(set));
    };
    const double low = at(-1);
    const double high = at(1);
    range = range ? Range({std::min(range->first, low), std::min(range->second, high)}) : Range({low, high});
  }
  return range;
}

/// The share of logged free memory that the engine takes.
double Trial::share_of(const LogNumber& budget) const {
  if (!budget.free_memory) return 1;
  return log_.free_share > 0 ? log_.free_share : inputs_.engine.utilization;
}

std::string Trial::budget_text(const Budgets& budgets) const {
  std::string text;
  for (const LogNumber* budget : budgets) {
    const double share = share_of(*budget);
    const std::string one =
        fmt::format("{}{:.2f} GiB{}", share < 1 ? fmt::format("{} x ", share) : "", budget->value,
                    budget->rank.empty() ? "" : fmt::format(" of {}", budget->rank));
    if (text.find(one) == std::string::npos) text += (text.empty() ? "" : ", ") + one;
  }
  return text;
}

std::int64_t Trial::length_of(const LogNumber& logged) const {
  return logged.length > 0 ? logged.length : log_.max_length > 0 ? log_.max_length : model_.max_position;
}

std::vector<Trial::Option> Trial::options(const LogNumber& logged) const {
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
    case LogKind::kTokenBytes:
      return token_bytes();
    case LogKind::kStateBytes:
      return state_bytes(logged);
    case LogKind::kBudget:
    case LogKind::kDeficit:
    case LogKind::kWeights:
      return {};
  }
  return {};
}

/// What the pool itself is known to hold: blocks or tokens another line logs, for those that follow from it.
void Trial::add_from_pool(std::vector<Option>& found, const LogNumber& logged, std::int64_t length) const {
  if (sets_.front().pools.size() != 1) return;
  const CachePool& pool = sets_.front().pools.front();
  const std::int64_t needed = sequence_blocks(inputs_, pool, length);
  constexpr std::size_t kMost = 64;  // lines that say the same pool again explain nothing new
  for (const LogNumber& other : log_.numbers) {
    if (found.size() >= kMost) break;
    double blocks = other.value;
    if (other.kind == LogKind::kTokens && pool.groups.size() == 1) {
      blocks = other.value / static_cast<double>(block()) / inputs_.layout.dcp;
    } else if (other.kind != LogKind::kBlocks) {
      continue;
    }
    if (logged.kind == LogKind::kConcurrency && needed > 0) {
      const double value = blocks / static_cast<double>(needed);
      found.push_back({Range({value, value}), how([&] {
                         return fmt::format("line {}: {} blocks, a sequence takes {}", other.line,
                                            count_text(blocks), num(needed));
                       })});
    } else if (logged.kind == LogKind::kTokens && other.kind == LogKind::kBlocks) {
      const double value = std::floor(blocks / static_cast<double>(pool.groups.size())) *
                           static_cast<double>(smallest_block()) * inputs_.layout.dcp;
      found.push_back({Range({value, value}), how([&] {
                         return fmt::format("line {}: {} blocks of {}", other.line, count_text(blocks),
                                            num(smallest_block()));
                       })});
    }
  }
}

Trial::Range Trial::from_budget(const LogNumber& logged, const Budgets& budgets, std::int64_t length) const {
  switch (logged.kind) {
    case LogKind::kTokens:
      return over_stages(budgets, length, [&](const PoolSet& set) {
        return tokens_of(inputs_, set, length, inputs_.engine.token_count);
      });
    case LogKind::kConcurrency:
      return over_stages(budgets, length,
                         [&](const PoolSet& set) { return concurrency_of(inputs_, set, length); });
    case LogKind::kBlocks:
      return over_stages(budgets, length, [](const PoolSet& set) {
        return set.pools.empty() ? std::int64_t{0} : set.pools.front().blocks;
      });
    default:
      return over_stages(budgets, length, [&](PoolSet& set) { return estimate_of(set, length); });
  }
}

/// vLLM's estimate of the longest sequence; it counts the null block as usable.
std::int64_t Trial::estimate_of(PoolSet& set, std::int64_t length) const {
  for (CachePool& pool : set.pools) pool.usable = pool.blocks;
  return longest_of(inputs_, set, length);
}

std::vector<Trial::Option> Trial::from_budgets(const LogNumber& logged) const {
  std::vector<Option> found;
  if (inputs_.engine.pools == PoolKind::kCells && logged.kind == LogKind::kTokens) add_cells(found, logged);
  const std::int64_t length = length_of(logged);
  const auto& pools = sets_.front().pools;
  for (const auto& budgets : choices_) {
    found.push_back({from_budget(logged, budgets, length), how([&] {
                       return fmt::format("{}, {} B a block of {} tokens", budget_text(budgets),
                                          pools.empty() ? std::string("0") : num(pools.front().block_bytes),
                                          num(block()));
                     })});
    if (logged.kind == LogKind::kEstimate && sets_.size() > 1)
      found.push_back(all_layers_on_one(budgets, length));
  }
  add_from_pool(found, logged, length);
  return found;
}

/// The estimate of a vLLM that charges all stages' layers to the rank that reports (vllm#34076).
Trial::Option Trial::all_layers_on_one(const Budgets& budgets, std::int64_t length) const {
  const auto at = [&](double shift) {
    PoolSet set = sets_.front();
    for (std::size_t stage = 1; stage < sets_.size(); ++stage) {
      for (std::size_t i = 0; i < set.pools.size(); ++i) {
        set.pools[i].block_bytes = plus(set.pools[i].block_bytes, sets_[stage].pools[i].block_bytes);
      }
    }
    const double bytes = (budgets.front()->value + shift * budgets.front()->half_digit) *
                         budgets.front()->unit * share_of(*budgets.front());
    fill(set, inputs_, static_cast<std::int64_t>(bytes), length);
    return static_cast<double>(estimate_of(set, length));
  };
  return {Range({at(-1), at(1)}),
          how([&] { return fmt::format("{}, {}", budget_text(budgets), kAllLayers); })};
}

/// What one sequence needs: on the largest stage, or (a known fault of vLLM under pp) with all layers on
/// one.
std::vector<Trial::Option> Trial::need(const LogNumber& logged) const {
  const std::int64_t length = length_of(logged);
  std::vector<Option> found;
  const auto add = [&](double bytes, std::string text) {
    const double value = bytes / logged.unit;
    found.push_back({Range({value, value}), std::move(text)});
  };
  double all = 0;
  for (std::size_t stage = 0; stage < sets_.size(); ++stage) {
    const auto bytes = static_cast<double>(sequence_bytes(inputs_, sets_[stage], length));
    all += bytes;
    add(bytes, how([&] {
          return sets_.size() == 1 ? fmt::format("{} tokens in blocks of {}", num(length), num(block()))
                                   : fmt::format("{} tokens on stage {}", num(length), stage);
        }));
  }
  if (sets_.size() > 1) {
    add(all, std::string(kAllLayers));
  }
  return found;
}

/// Bytes of a token on each stage: of all layers that grow with it, windows too.
std::vector<Trial::Option> Trial::token_bytes() const {
  std::vector<Option> found;
  for (std::size_t stage = 0; stage < sets_.size(); ++stage) {
    double sum = 0;
    for (const CachePool& pool : sets_[stage].pools) {
      for (const CacheGroup& group : pool.groups) {
        if (group.kind != GroupKind::kState && group.block > 0)
          sum += static_cast<double>(group.block_bytes) / static_cast<double>(group.block);
      }
    }
    found.push_back({Range({sum, sum}), how([&] {
                       return sets_.size() == 1 ? std::string("a token on a rank")
                                                : fmt::format("a token on a rank of stage {}", stage);
                     })});
  }
  return found;
}

}  // namespace mla::capacity
