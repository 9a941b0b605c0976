// SPDX-License-Identifier: Apache-2.0
#include "numerics/pools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "numerics/limits.hpp"

namespace mla {
namespace {

/// Sums over the rows of one pool.
struct Pool {
  double square = 0, variance = 0, variance_squared = 0, drift_squared = 0;
  std::int64_t rows = 0;

  void add(const RowSample& row) {
    square += row.square;
    variance += row.variance;
    variance_squared += row.variance * row.variance;
    drift_squared += row.drift * row.drift;
    ++rows;
  }

  [[nodiscard]] double share() const {
    if (rows == 0 || square == 0) return 0.0;
    // Each row's mean square may be as uneven as the square of a single normal number (all its channels
    // moving together), so its standard deviation is at most sqrt(2) times its mean; rows are independent.
    const double spread = variance > 0 ? std::sqrt(2 * variance_squared) / variance : 0.0;
    const double n = static_cast<double>(rows);
    const double limit =
        std::sqrt(variance / n * (1 + limits::kSigmas * spread)) + std::sqrt(drift_squared / n);
    const double error = std::sqrt(square / n);
    return limit > 0 ? error / limit : std::numeric_limits<double>::infinity();
  }
};

void take(ErrorReport& report, const Pool& pool, std::string name) {
  const double share = pool.share();
  if (share <= report.pooled_share) return;
  report.pooled_share = share;
  report.pool = std::move(name);
}

/// Mean over rows and how far from 0 chance and drift may take it.
struct Mean {
  double value = 0, allowed = 0;
};

template <class Get>
Mean mean_of(std::span<const RowSample> rows, Get get) {
  double sum = 0, squares = 0, drift = 0;
  double n = 0;
  for (const RowSample& row : rows) {
    if (!row.counted) continue;
    const double x = get(row);
    sum += x;
    squares += x * x;
    drift += row.drift_ulp;
    n += 1;
  }
  if (n < 2) return {n > 0 ? sum / n : 0.0, std::numeric_limits<double>::infinity()};
  const double mean = sum / n;
  const double variance = std::max(0.0, (squares - n * mean * mean) / (n - 1));
  return {mean, limits::kBiasFloor + drift / n + limits::kBiasSigmas * std::sqrt(variance / n)};
}

}  // namespace

void judge_pools(std::span<const RowSample> rows, const CompareOptions& options, ErrorReport& report) {
  const auto heads = static_cast<std::size_t>(options.num_heads);
  const std::size_t requests = options.cu_seqlens_q.empty() ? 0 : options.cu_seqlens_q.size() - 1;
  Pool all;
  std::vector<Pool> by_head(heads);
  std::vector<Pool> by_request(requests);
  std::size_t request = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (!rows[r].counted) continue;
    all.add(rows[r]);
    by_head[r % heads].add(rows[r]);
    const auto token = static_cast<std::int64_t>(r / heads);
    while (request < requests && token >= options.cu_seqlens_q[request + 1]) ++request;
    if (request < requests) by_request[request].add(rows[r]);
  }
  take(report, all, "all rows");
  for (std::size_t i = 0; i < requests; ++i) take(report, by_request[i], fmt::format("request {}", i));
  for (std::size_t i = 0; i < heads; ++i) take(report, by_head[i], fmt::format("head {}", i));
  if (report.pooled_share > report.budget_share) {
    report.budget_share = report.pooled_share;
    report.stage = "pooled";
  }
}

void judge_bias(std::span<const RowSample> rows, DType out_dtype, ErrorReport& report) {
  const Mean plain = mean_of(rows, [](const RowSample& row) { return row.bias; });
  const Mean shrink = mean_of(rows, [](const RowSample& row) { return row.shrink; });
  report.signed_bias = plain.value;
  report.magnitude_bias = shrink.value;
  const bool coarse = unit_roundoff(out_dtype) >= unit_roundoff(DType::kF16);
  const auto counted =
      std::count_if(rows.begin(), rows.end(), [](const RowSample& row) { return row.counted; });
  if (!coarse || counted < limits::kBiasRows) return;
  const double share =
      std::max(std::abs(plain.value) / plain.allowed, std::abs(shrink.value) / shrink.allowed);
  report.biased = share > 1;
  if (report.biased && share > report.budget_share) {
    report.budget_share = share;
    report.stage = "bias";
  }
}

}  // namespace mla
