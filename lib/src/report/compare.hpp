// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/record.hpp"

/// Two runs, point by point: did it get slower? The rule is that of an equivalence test, so that it can
/// neither be satisfied by noise nor fail on it (docs/measurement.md).
namespace mla::report {

enum class Change : std::uint8_t {
  kSame,       ///< the interval of the ratio lies within the threshold: no change that matters
  kFaster,     ///< it lies below: every value in it is a gain of more than the threshold
  kSlower,     ///< it lies above
  kAmbiguous,  ///< it crosses a threshold, or there are too few samples: measure longer
  kBroken,     ///< it worked and works no more
};
/// "SAME", "FASTER", "SLOWER", "AMBIGUOUS", "BROKEN".
[[nodiscard]] std::string_view name_of(Change change) noexcept;

struct PointChange {
  const BenchRecord* base = nullptr;  ///< first record of the point in each run
  const BenchRecord* now = nullptr;
  Change change = Change::kSame;
  double base_us = 0, now_us = 0;       ///< medians over all repetitions
  double ratio = 1, low = 1, high = 1;  ///< now / base, with an interval of at least 95 % confidence
  std::int64_t n_base = 0, n_now = 0;
  std::optional<double> cycles;  ///< the ratio in cycles of the SM clock, where both runs know it
  std::string why;               ///< of AMBIGUOUS and BROKEN, and where the clock explains a change
};

struct RunChange {
  std::vector<PointChange> points;               ///< in the order of the base
  std::vector<std::string> only_base, only_now;  ///< identities
  std::int64_t untimed = 0;                      ///< points without a time in either: nothing to compare
  double ratio = 1;                              ///< geometric mean over the points with times in both
  [[nodiscard]] std::int64_t count(Change change) const noexcept;
};

/// `threshold` 0.03: changes up to 3 % do not matter. Records with the same identity are repetitions: each
/// one's interval of the median is taken, and a side is the hull of its repetitions, so that what differs
/// between repetitions widens it. The spans must outlive the result.
[[nodiscard]] RunChange compare_runs(std::span<const BenchRecord> base, std::span<const BenchRecord> now,
                                     double threshold);

/// Worst first; the first line is a summary fit for a pull request's title.
[[nodiscard]] Document compare_document(const RunChange& change, double threshold);

}  // namespace mla::report
