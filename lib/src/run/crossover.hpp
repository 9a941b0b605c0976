// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "run/stats.hpp"

namespace mla::run {

/// Where one of two rivals overtakes the other along an axis.
struct CrossoverPoint {
  std::int64_t x = 0;
  double first = 0, second = 0;              ///< medians, seconds
  Interval first_interval, second_interval;  ///< of the medians
  /// -1: the first is surely faster, 1: the second, 0: the intervals overlap.
  [[nodiscard]] int faster() const noexcept;
};

struct Crossover {
  bool found = false;        ///< the two ends have different winners
  bool interrupted = false;  ///< given up early
  int below = 0, above = 0;  ///< who wins at the low and at the high end (as CrossoverPoint::faster)
  std::int64_t low = 0;      ///< largest x seen where the winner below is sure
  std::int64_t high = 0;     ///< smallest x seen where the winner above is sure
  double estimate = 0;  ///< where the medians are equal, by interpolation of log(first / second) over log(x)
  std::vector<CrossoverPoint> points;  ///< all measured, by x
};

/// Bisects [low, high] (1 <= low < high) geometrically. Points where the intervals overlap belong to neither
/// side: both borders of that zone are narrowed until neighbours are within `resolution` of each other (1.05:
/// 5 %). Assumes one crossing. `measure` returns false to give up. Throws kInvalidArgument for an empty
/// range.
[[nodiscard]] Crossover find_crossover(std::int64_t low, std::int64_t high, double resolution,
                                       const std::function<bool(CrossoverPoint&)>& measure);

}  // namespace mla::run
