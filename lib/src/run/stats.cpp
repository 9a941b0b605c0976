// SPDX-License-Identifier: Apache-2.0
#include "run/stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mla/error.hpp"

namespace mla::run {
namespace {

/// P(Binomial(n, 1/2) = i), by logarithms: 2^-n alone underflows from n = 1075 on.
double half_binomial(double n, double i) {
  return std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) - n * std::log(2.0));
}

}  // namespace

double quantile(std::span<const double> sorted, double q) {
  if (sorted.empty() || !(q >= 0 && q <= 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("quantile {} of {} samples is not defined", q, sorted.size()));
  }
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

Interval median_interval(std::span<const double> sorted, double confidence) {
  if (sorted.empty() || !(confidence > 0 && confidence < 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a {} interval of {} samples is not defined", confidence, sorted.size()));
  }
  const auto n = static_cast<double>(sorted.size());
  const double tail = (1 - confidence) / 2;
  std::size_t k = 0;
  for (double below = half_binomial(n, 0); below <= tail && 2 * (k + 1) <= sorted.size();
       below += half_binomial(n, static_cast<double>(k))) {
    ++k;
  }
  if (k == 0) return {sorted.front(), sorted.back()};
  return {sorted[k - 1], sorted[sorted.size() - k]};
}

Summary summarize(std::span<const double> samples) {
  if (samples.empty()) throw Error(ErrorCode::kInvalidArgument, "no samples to summarize");
  std::vector<double> sorted(samples.begin(), samples.end());
  for (const double s : sorted) {
    if (!std::isfinite(s)) throw Error(ErrorCode::kInvalidArgument, fmt::format("a sample is {}", s));
  }
  std::ranges::sort(sorted);
  Summary summary;
  summary.n = sorted.size();
  summary.median = quantile(sorted, 0.5);
  summary.min = sorted.front();
  summary.max = sorted.back();
  summary.p25 = quantile(sorted, 0.25);
  summary.p75 = quantile(sorted, 0.75);
  summary.interval = median_interval(sorted);
  summary.noise = summary.n < 2 || summary.median <= 0
                      ? std::numeric_limits<double>::infinity()
                      : (summary.interval.high - summary.interval.low) / (2 * summary.median);
  return summary;
}

}  // namespace mla::run
