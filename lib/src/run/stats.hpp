// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

/// What is said about a set of timings. Nothing here assumes a distribution: times have a hard lower edge and
/// a long tail, so means and standard deviations mislead (docs/measurement.md).
namespace mla::run {

/// A two-sided interval.
struct Interval {
  double low = 0, high = 0;
  [[nodiscard]] bool overlaps(const Interval& other) const noexcept {
    return low <= other.high && other.low <= high;
  }
};

/// Summary of n samples; all in the unit of the samples.
struct Summary {
  std::size_t n = 0;
  double median = 0, min = 0, max = 0;
  double p25 = 0, p75 = 0;
  Interval interval;  ///< 95 % confidence interval of the median
  double noise = 0;   ///< half width of the interval / median; infinite for n < 2
};

/// Linear interpolation between order statistics (the "type 7" rule). `sorted` ascending, not empty; 0 <= q
/// <= 1.
[[nodiscard]] double quantile(std::span<const double> sorted, double q);

/// Distribution-free confidence interval of the median from order statistics: the k-th smallest to the k-th
/// largest, k the largest with P(Binomial(n, 1/2) < k) <= (1 - confidence) / 2. With fewer than six samples
/// no such k exists at 95 %: then the range [min, max], whose coverage is less.
[[nodiscard]] Interval median_interval(std::span<const double> sorted, double confidence = 0.95);

/// Throws kInvalidArgument for no samples or a sample that is not finite.
[[nodiscard]] Summary summarize(std::span<const double> samples);

}  // namespace mla::run
