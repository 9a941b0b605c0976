// SPDX-License-Identifier: Apache-2.0
#include "numerics/pools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace mla {
namespace {

/// Sums over the rows of one pool.
struct Pool {
  double square = 0, variance = 0, rounding = 0, expected_squared = 0, drift_squared = 0;
  double rows = 0;

  void add(const RowSample& row) {
    square += row.square;
    variance += row.variance;
    rounding += row.rounding;
    const double expected = row.variance + row.rounding;
    expected_squared += expected * expected;
    drift_squared += row.drift * row.drift;
    rows += 1;
  }

  /// What the mean square has beyond output rounding, against what it may have.
  [[nodiscard]] double share(double sigmas) const {
    if (rows == 0 || square <= rounding) return 0.0;
    // Each row's mean square may be as uneven as the square of a single normal number (all its channels
    // moving together), so its standard deviation is at most sqrt(2) times its mean; rows are independent.
    const double chance = sigmas * std::sqrt(2 * expected_squared);
    const double limit = std::sqrt(rounding + variance + chance) + std::sqrt(drift_squared);
    const double allowed = limit * limit - rounding;
    return allowed > 0 ? std::sqrt((square - rounding) / allowed) : std::numeric_limits<double>::infinity();
  }
};

void take(ErrorReport& report, const Pool& pool, double sigmas, std::string name) {
  const double share = pool.share(sigmas);
  if (share <= report.pooled_share) return;
  report.pooled_share = share;
  report.pool = std::move(name);
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
  const double z = options.limits.sigmas;
  take(report, all, z, "all rows");
  for (std::size_t i = 0; i < requests; ++i) take(report, by_request[i], z, fmt::format("request {}", i));
  for (std::size_t i = 0; i < heads; ++i) take(report, by_head[i], z, fmt::format("head {}", i));
  if (report.pooled_share > report.budget_share) {
    report.budget_share = report.pooled_share;
    report.stage = "pooled";
  }
}

}  // namespace mla
