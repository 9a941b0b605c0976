// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "mla/numerics.hpp"

namespace mla {

/// Mean error against 0: finds truncation, and weights that do not sum to one, which no single row shows.
///
/// What is averaged is (got - round(want)) / ulp. How the exact result rounds is no chance and says nothing
/// of the kernel; it would only be noise, and the same noise wherever the same number comes up.
///
/// Errors may be shared along a row (one rounded P moves all channels), along a column (heads that see the
/// same keys) and between elements that ought to be the same number (results that take few values: each of
/// them lies on one side of its rounding boundary). The variance of the mean is therefore that of the sums
/// over rows, plus that over columns, plus that over equal rounded results, and the number of independent
/// samples is the smallest of the three effective numbers of such groups.
class BiasCheck {
 public:
  /// Only output types whose last place stands far above the arithmetic are judged (bf16, f16, e4m3); for
  /// others this keeps the means alone.
  BiasCheck(DType out_dtype, std::int64_t width);

  /// An element of the row being added. `units` = (got - ideal) / ulp, `ideal` = want rounded to the output
  /// type.
  void add(std::int64_t column, double ideal, double units);
  /// Ends the row; `drift` is what its systematic terms explain, in ulp. Rows that must be exact are no
  /// sample: do not call add() for them.
  void end_row(double drift);

  /// Fills signed_bias, magnitude_bias and biased, and budget_share where the bias is worse.
  void judge(const Limits& limits, ErrorReport& report) const;

 private:
  /// Sums of errors, plain and with the sign of want.
  struct Sums {
    double plain = 0, shrink = 0;
    std::int64_t count = 0;
    void add(double units, double outward) noexcept;
  };
  /// What the groups of one kind say: variance of the mean of either kind of error, and how many groups of
  /// equal size would be as good.
  struct Groups {
    double plain = 0, shrink = 0, sum = 0, squares = 0, number = 0;
    void add(const Sums& group, const Sums& all);
    [[nodiscard]] double effective() const noexcept { return squares > 0 ? sum * sum / squares : 0.0; }
    [[nodiscard]] double correction() const noexcept;
  };

  bool judged_;
  Sums all_, row_;
  double drift_ = 0;
  std::vector<Sums> rows_, columns_;
  std::unordered_map<double, Sums> values_;
};

/// The multiple of an estimated standard deviation that is as rare as `sigmas` known ones, for an estimate
/// from `freedom` degrees of freedom: Student's distribution, by the expansion of its quantile in 1 /
/// freedom.
[[nodiscard]] double student_quantile(double sigmas, double freedom) noexcept;

}  // namespace mla
