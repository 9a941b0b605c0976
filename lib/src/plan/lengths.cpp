// SPDX-License-Identifier: Apache-2.0
#include "plan/lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/plan_request.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {
namespace {

/// Mean and spread of the share of a pool that one request takes; the scarcest pool decides.
struct Share {
  double mean = 0, variance = 0;
};

/// Share of the whole cache that a request of `length` tokens takes.
double share_of(const PoolInputs& inputs, const PoolSet& set, std::size_t pool, std::int64_t length) {
  if (set.fluid) {
    return static_cast<double>(sequence_bytes(inputs, set, length)) /
           static_cast<double>(std::max<std::int64_t>(1, set.budget));
  }
  const CachePool& one = set.pools[pool];
  return static_cast<double>(sequence_blocks(inputs, one, length)) /
         static_cast<double>(std::max<std::int64_t>(1, one.usable));
}

Share full_length_share(const PoolInputs& inputs, const PoolSet& set, std::size_t pool,
                        std::span<const std::int64_t> totals) {
  Share share;
  for (const std::int64_t total : totals) share.mean += share_of(inputs, set, pool, total);
  share.mean /= static_cast<double>(totals.size());
  for (const std::int64_t total : totals) {
    const double off = share_of(inputs, set, pool, total) - share.mean;
    share.variance += off * off;
  }
  share.variance /= static_cast<double>(totals.size());
  return share;
}

/// Largest n with n m + 2.326 s sqrt(n) <= 1: a sum of n independent shares stays below 1 with 99 %.
std::int64_t tail_count(const Share& share) {
  constexpr double k99 = 2.3263;
  if (share.mean <= 0) return 0;
  const double spread = k99 * std::sqrt(share.variance);
  const double root = (-spread + std::sqrt(spread * spread + 4 * share.mean)) / (2 * share.mean);
  return static_cast<std::int64_t>(std::floor(root * root + 1e-9));
}

double running_share(const PoolInputs& inputs, const PoolSet& set, std::size_t pool,
                     std::span<const RequestLengths> trace) {
  double weighted = 0;
  double weights = 0;
  for (const RequestLengths& request : trace) {
    const auto weight = static_cast<double>(std::max<std::int64_t>(1, request.output));
    weighted +=
        weight * share_of(inputs, set, pool, std::max<std::int64_t>(1, request.prompt + request.output / 2));
    weights += weight;
  }
  return weighted / weights;
}

std::int64_t percentile(std::span<const std::int64_t> sorted, double share) {
  const auto at = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(at, 1, sorted.size()) - 1];
}

double waste_of(const PoolSet& set, std::span<const std::int64_t> totals) {
  double held = 0;
  double allocated = 0;
  for (const std::int64_t total : totals) {
    held += static_cast<double>(total);
    allocated +=
        static_cast<double>(round_up(std::max<std::int64_t>(1, total), std::max<std::int64_t>(1, set.block)));
  }
  return allocated > 0 ? 1 - held / allocated : 0;
}

}  // namespace

LengthReport plan_lengths(const ModelConfig& model, const PlanRequest& asked,
                          std::span<const RequestLengths> trace) {
  if (trace.empty()) throw Error(ErrorCode::kInvalidArgument, "the trace holds no request");
  const PlanRequest request = completed(model, asked);
  const MemoryPlan plan = plan_memory(model, request);
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
  const PoolInputs inputs = pool_inputs(model, request);
  PoolSet set = pool_geometry(inputs, plan.limiting_stage);
  fill(set, inputs, stage.cache_budget, plan.context);

  LengthReport report;
  report.requests = static_cast<std::int64_t>(trace.size());
  report.worst_case = plan.sequences_per_replica;
  std::vector<std::int64_t> totals;
  std::vector<RequestLengths> served;
  for (const RequestLengths& one : trace) {
    if (one.prompt < 0 || one.output < 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("a request of {} and {} tokens: lengths must not be negative", one.prompt, one.output));
    }
    const std::int64_t total = plus(one.prompt, one.output);
    if (total > plan.context || total == 0) {
      report.too_long += total > plan.context ? 1 : 0;
      continue;
    }
    totals.push_back(total);
    served.push_back(one);
  }
  if (totals.empty()) return report;
  std::sort(totals.begin(), totals.end());
  double sum = 0;
  for (const std::int64_t total : totals) sum += static_cast<double>(total);
  report.mean = sum / static_cast<double>(totals.size());
  report.p50 = percentile(totals, 0.5);
  report.p90 = percentile(totals, 0.9);
  report.p99 = percentile(totals, 0.99);
  report.longest = totals.back();
  report.paging_waste = waste_of(set, totals);
  const std::size_t pools = set.fluid ? 1 : set.pools.size();
  const bool room = stage.cache_budget > 0;
  for (std::size_t pool = 0; pool < pools && room; ++pool) {
    const Share share = full_length_share(inputs, set, pool, totals);
    const double running = running_share(inputs, set, pool, served);
    const double at_full = share.mean > 0 ? 1 / share.mean : 0;
    const double at_random = running > 0 ? 1 / running : 0;
    report.at_full_length = pool == 0 ? at_full : std::min(report.at_full_length, at_full);
    report.running = pool == 0 ? at_random : std::min(report.running, at_random);
    report.tail = pool == 0 ? tail_count(share) : std::min(report.tail, tail_count(share));
  }
  const auto add = [&](const char* key, const char* title, Unit unit, Number value, const char* formula) {
    report.lines.push_back({key, title, unit, value, formula, "the trace; the pool of the plan"});
  };
  add("lengths.mean", "mean length", Unit::kTokens, report.mean, "sum of prompt + output / requests");
  add("lengths.waste", "slots of the last block left empty", Unit::kRatio, report.paging_waste,
      "1 - sum of lengths / sum of lengths rounded up to blocks");
  add("lengths.full", "requests at once, each at its final length", Unit::kRatio, report.at_full_length,
      "usable blocks / mean blocks of a request");
  add("lengths.running", "requests at once at a random moment", Unit::kRatio, report.running,
      "usable blocks / mean blocks of prompt + output / 2, weighted by output");
  add("lengths.tail", "requests at once with 99 % certainty", Unit::kSequences, report.tail,
      "largest n with n x mean + 2.326 x deviation x sqrt(n) <= usable blocks");
  return report;
}

}  // namespace mla::capacity
