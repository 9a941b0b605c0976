// SPDX-License-Identifier: Apache-2.0
#include "plan/lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mla/error.hpp"
#include "mla/random.hpp"
#include "plan/arithmetic.hpp"
#include "plan/plan_request.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {
namespace {

/// What a request takes of each pool, as a share of what is usable there: of all stages, as it needs each of them.
class Pools {
 public:
  Pools(const PoolInputs& inputs, std::span<const PoolSet> stages) : inputs_(inputs) {
    for (const PoolSet& set : stages) {
      if (set.fluid) {
        pools_.push_back({.set = &set});
      } else {
        for (const CachePool& pool : set.pools) pools_.push_back({.set = &set, .fixed = &pool});
      }
    }
  }

  [[nodiscard]] std::size_t count() const { return pools_.size(); }

  [[nodiscard]] double share(std::size_t pool, std::int64_t tokens) const {
    const Pool& one = pools_[pool];
    if (one.fixed == nullptr) {
      return static_cast<double>(sequence_bytes(inputs_, *one.set, tokens)) /
             static_cast<double>(std::max<std::int64_t>(1, one.set->left));
    }
    return static_cast<double>(sequence_blocks(inputs_, *one.fixed, tokens)) /
           static_cast<double>(std::max<std::int64_t>(1, one.fixed->usable));
  }

 private:
  struct Pool {
    const PoolSet* set = nullptr;
    const CachePool* fixed = nullptr;  ///< none: the set is one pool of bytes
  };
  const PoolInputs& inputs_;
  std::vector<Pool> pools_;
};

struct Spread {
  double mean = 0, deviation = 0, skew = 0;
};

/// The requests of a trace as a random moment sees them.
class Moments {
 public:
  explicit Moments(std::span<const RequestLengths> trace) : trace_(trace) {
    double sum = 0;
    for (const RequestLengths& request : trace) cumulative_.push_back(sum += weight(request));
  }

  /// Tokens that a request holds at a random moment, drawn by the index.
  [[nodiscard]] std::int64_t draw(const CounterRng& rng, std::uint64_t index) const {
    const double at = rng.uniform(2 * index) * cumulative_.back();
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), at);
    const auto i = static_cast<std::size_t>(
        std::min<std::ptrdiff_t>(found - cumulative_.begin(), std::ssize(cumulative_) - 1));
    return held(trace_[i], rng.uniform(2 * index + 1));
  }

  /// Of the share of a pool that one request takes: over the requests by weight, each at the middle of quarters
  /// of its answer.
  [[nodiscard]] Spread share_of(const Pools& pools, std::size_t pool) const {
    constexpr double kMiddles[] = {0.125, 0.375, 0.625, 0.875};
    double sums[3] = {};
    for (const RequestLengths& request : trace_) {
      for (const double part : kMiddles) {
        const double share = pools.share(pool, held(request, part));
        double term = weight(request) / cumulative_.back() / std::ssize(kMiddles);
        for (double& sum : sums) sum += term *= share;
      }
    }
    const double mean = sums[0];
    const double variance = std::max(0.0, sums[1] - mean * mean);
    const double third = sums[2] - 3 * mean * sums[1] + 2 * mean * mean * mean;
    return {mean, std::sqrt(variance), variance > 0 ? third / (variance * std::sqrt(variance)) : 0};
  }

 private:
  static double weight(const RequestLengths& request) {
    return static_cast<double>(std::max<std::int64_t>(1, request.output));
  }
  static std::int64_t held(const RequestLengths& request, double part) {
    const auto answered = static_cast<std::int64_t>(std::ceil(part * static_cast<double>(request.output)));
    return std::max<std::int64_t>(1, request.prompt + answered);
  }

  std::span<const RequestLengths> trace_;
  std::vector<double> cumulative_;
};

/// Draws requests until a pool overflows, again and again: the number that fits in 99 of 100 trials.
std::int64_t drawn_count(const Pools& pools, const Moments& moments) {
  constexpr std::size_t kTrials = 1000;
  constexpr std::size_t kQuantile = kTrials / 100;
  const CounterRng rng(1);
  std::vector<std::int64_t> counts;
  std::uint64_t index = 0;
  for (std::size_t trial = 0; trial < kTrials; ++trial) {
    std::vector<double> used(pools.count(), 0.0);
    std::int64_t count = 0;
    for (bool fits = true; fits; count += fits ? 1 : 0) {
      const std::int64_t tokens = moments.draw(rng, index++);
      for (std::size_t pool = 0; pool < used.size(); ++pool) {
        used[pool] += pools.share(pool, tokens);
        fits = fits && used[pool] <= 1 + 1e-9;
      }
    }
    counts.push_back(count);
  }
  std::ranges::sort(counts);
  return counts[kQuantile];
}

/// Largest n of which a sum of n shares stays below 1 with 99 %: normal, corrected for skew (Cornish and Fisher).
std::int64_t normal_count(const Spread& share) {
  constexpr double kZ = 2.3263;
  const double correction = share.deviation * share.skew * (kZ * kZ - 1) / 6;
  const double room = 1 - std::clamp(correction, -1.0, 0.9);
  const double spread = kZ * share.deviation;
  const double root = (-spread + std::sqrt(spread * spread + 4 * share.mean * room)) / (2 * share.mean);
  return static_cast<std::int64_t>(std::floor(root * root + 1e-9));
}

double mean_full_share(const Pools& pools, std::size_t pool, std::span<const std::int64_t> totals) {
  double sum = 0;
  for (const std::int64_t total : totals) sum += pools.share(pool, total);
  return sum / static_cast<double>(totals.size());
}

std::int64_t percentile(std::span<const std::int64_t> sorted, double share) {
  const auto at = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(at, 1, sorted.size()) - 1];
}

double waste_of(std::int64_t block, std::span<const std::int64_t> totals) {
  double held = 0;
  double allocated = 0;
  for (const std::int64_t total : totals) {
    held += static_cast<double>(total);
    allocated += static_cast<double>(round_up(total, std::max<std::int64_t>(1, block)));
  }
  return allocated > 0 ? 1 - held / allocated : 0;
}

/// Of the trace, what the engine would take.
std::vector<RequestLengths> served(std::span<const RequestLengths> trace, std::int64_t context,
                                   LengthReport& report) {
  std::vector<RequestLengths> taken;
  for (const RequestLengths& one : trace) {
    if (one.prompt < 0 || one.output < 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("a request of {} and {} tokens: lengths must not be negative", one.prompt, one.output));
    }
    const std::int64_t total = plus(one.prompt, one.output);
    if (total == 0) {
      ++report.empty;
    } else if (total > context) {
      ++report.too_long;
    } else {
      taken.push_back(one);
    }
  }
  return taken;
}

void add_lengths(LengthReport& report, std::span<const RequestLengths> taken,
                 std::vector<std::int64_t>& totals) {
  double sum = 0;
  for (const RequestLengths& one : taken) {
    totals.push_back(one.prompt + one.output);
    sum += static_cast<double>(totals.back());
  }
  std::ranges::sort(totals);
  report.mean = sum / static_cast<double>(totals.size());
  report.p50 = percentile(totals, 0.5);
  report.p90 = percentile(totals, 0.9);
  report.p99 = percentile(totals, 0.99);
  report.longest = totals.back();
}

void add_lines(LengthReport& report) {
  const auto add = [&](const char* key, const char* title, Unit unit, Number value, const char* formula) {
    report.lines.push_back({key, title, unit, value, formula, "the trace; the pool of the plan"});
  };
  add("lengths.mean", "mean length", Unit::kTokens, report.mean, "sum of prompt + output / requests");
  add("lengths.waste", "slots of the last block left empty", Unit::kRatio, report.paging_waste,
      "1 - sum of lengths / sum of lengths rounded up to blocks");
  add("lengths.full", "requests that fit, each at its final length", Unit::kRatio, report.at_full_length,
      "usable blocks / mean blocks of a request");
  add("lengths.expected", "requests that fit at a random moment", Unit::kRatio, report.expected,
      "usable blocks / mean blocks of prompt + part of the output; requests weighted by output");
  add("lengths.certain", "requests that fit with 99 % certainty", Unit::kSequences, report.certain,
      "of fewer than 200: random moments drawn until the pool is full, 99 of 100 trials hold this many; of "
      "more: largest n with n x mean + 2.326 x deviation x sqrt(n) + skew term <= pool");
}

}  // namespace

LengthReport plan_lengths(const ModelConfig& model, const PlanRequest& asked,
                          std::span<const RequestLengths> trace) {
  if (trace.empty()) throw Error(ErrorCode::kInvalidArgument, "the trace holds no request");
  const PlanRequest request = completed(model, asked);
  const MemoryPlan plan = plan_memory(model, request);
  const PoolInputs inputs = pool_inputs(model, request);
  std::vector<PoolSet> stages = pool_geometries(inputs);
  bool budget = true;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    // The plan's budget has paid for the scratch of this context, and so does filling.
    fill(stages[i], inputs, plus(plan.stages[i].cache_budget, inputs.scratch.bytes(plan.context)),
         plan.context);
    budget = budget && plan.stages[i].cache_budget > 0;
  }

  LengthReport report;
  report.requests = std::ssize(trace);
  report.worst_case = plan.sequences_per_replica;
  report.most = run_at_once(request, std::numeric_limits<std::int64_t>::max());
  report.most_is = batch_limit(request).name;
  const std::vector<RequestLengths> taken = served(trace, plan.context, report);
  report.served = std::ssize(taken);
  if (taken.empty()) return report;
  std::vector<std::int64_t> totals;
  add_lengths(report, taken, totals);
  report.paging_waste = waste_of(plan.block * request.layout.dcp, totals);
  if (budget) {
    const Pools pools(inputs, stages);
    const Moments moments(taken);
    // Of few requests each counts, so they are drawn; sums of many are smooth.
    constexpr double kFew = 200;
    std::int64_t certain = 0;
    for (std::size_t pool = 0; pool < pools.count(); ++pool) {  // the scarcest pool decides
      const double full = mean_full_share(pools, pool, totals);
      const Spread now = moments.share_of(pools, pool);
      if (full > 0 && (pool == 0 || 1 / full < report.at_full_length)) report.at_full_length = 1 / full;
      if (now.mean <= 0) continue;
      if (pool == 0 || 1 / now.mean < report.expected) report.expected = 1 / now.mean;
      const std::int64_t count = normal_count(now);
      certain = pool == 0 ? count : std::min(certain, count);
    }
    report.certain = report.expected < kFew ? drawn_count(pools, moments) : certain;
    // A request so rare and large that most trials miss it weighs in the mean alone.
    report.certain = std::min(report.certain, static_cast<std::int64_t>(std::floor(report.expected)));
  }
  add_lines(report);
  return report;
}

}  // namespace mla::capacity
