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
};

/// RMS over pools of rows (all, each request, each head) against what their rows lead to expect: finds an
/// error too small for every single row. Fills pooled_share and pool, and budget_share where that is larger.
void judge_pools(std::span<const RowSample> rows, const CompareOptions& options, ErrorReport& report);

}  // namespace mla
