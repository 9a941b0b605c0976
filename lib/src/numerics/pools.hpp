// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "mla/numerics.hpp"

namespace mla {

/// What a row contributes to the judgement of many rows together.
struct RowSample {
  bool counted = false;  ///< false: no finite element
  double square = 0;     ///< mean square of got - want
  double variance = 0;   ///< what is expected of it: random terms and output rounding
  double drift = 0;      ///< systematic part, as an RMS
  double bias = 0;       ///< mean of (got - want) / ulp
  double shrink = 0;     ///< the same with the sign of want
  double drift_ulp = 0;  ///< drift in units of the output's last place
};

/// RMS over pools of rows (all, each request, each head) against what their rows lead to expect: finds an
/// error too small for every single row. Fills pooled_share and pool, and budget_share where that is larger.
void judge_pools(std::span<const RowSample> rows, const CompareOptions& options, ErrorReport& report);

/// Mean error against 0, with the rows as the independent samples: finds truncation. Only for output types
/// whose last place stands far above the arithmetic (bf16, f16, e4m3). Fills signed_bias, magnitude_bias and
/// biased.
void judge_bias(std::span<const RowSample> rows, DType out_dtype, ErrorReport& report);

}  // namespace mla
