// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "mla/numerics.hpp"

namespace mla {

/// What a row contributes to the judgement of many rows together.
struct RowSample {
  bool counted = false;  ///< false: no finite element
  double square = 0;     ///< mean square of got - want
  double variance = 0;   ///< what random terms are expected to add to it
  double rounding = 0;   ///< what output rounding adds to it
  double drift = 0;      ///< systematic part, as an RMS
  bool exact = false;    ///< must be the reference rounded: judged bit by bit, and no sample of a bias
  double bias = 0;       ///< mean of (got - want) / ulp
  double shrink = 0;     ///< the same with the sign of want
  double drift_ulp = 0;  ///< drift in units of the output's last place
};

/// Mean over all rows of a column's errors in ulp, kept as sums.
struct ColumnSample {
  double bias = 0, shrink = 0;
  std::int64_t count = 0;
  void add(double b, double s) noexcept {
    bias += b;
    shrink += s;
    ++count;
  }
};

/// RMS over pools of rows (all, each request, each head) against what their rows lead to expect: finds an
/// error too small for every single row. Fills pooled_share and pool, and budget_share where that is larger.
void judge_pools(std::span<const RowSample> rows, const CompareOptions& options, ErrorReport& report);

/// Mean error against 0: finds truncation. Errors may be shared along a row (a rounded P moves all channels)
/// and along a column (heads that see the same keys round the same values), so the variance of the mean is
/// taken over rows and over columns and added. Only for output types whose last place stands far above the
/// arithmetic (bf16, f16, e4m3). Fills signed_bias, magnitude_bias and biased.
void judge_bias(std::span<const RowSample> rows, std::span<const ColumnSample> columns, DType out_dtype,
                const Limits& limits, ErrorReport& report);

}  // namespace mla
