// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mla/backend.hpp"
#include "mla/export.h"
#include "mla/reference.hpp"

/// Judging an attention result row by row, a row being one (token, head): never tensor-wide, where one wrong request
/// hides among many right ones (docs/numerics.md).
namespace mla {

/// What a row may differ from the fp64 reference.
struct RowBudget {
  double max = 0;  ///< allowed largest |got - want| of the row
  double rms = 0;  ///< allowed root mean square of got - want over the row
  double lse = 0;  ///< allowed |lse - want|
};

/// Allowed error of one row from the case itself, by the error model of docs/numerics.md: score error through the
/// softmax, rounding of P, of partials, of the absorbed query, of expanded K/V and of the output, for a kernel that
/// rounds where `profile` says. `width` is the row's width, `out_rms`/`out_max` describe the reference row.
[[nodiscard]] MLA_EXPORT RowBudget row_budget(const reference::RowStats& stats, const RoundingProfile& profile,
                                              const AttentionShape& shape, double softmax_scale, double out_rms,
                                              double out_max);

/// Outcome of a comparison. `worst_*` locate the element (or LSE) with the largest share of its budget.
struct ErrorReport {
  std::int64_t rows = 0;
  std::int64_t failed_rows = 0;
  std::int64_t nan_mismatches = 0;  ///< elements that are NaN or Inf where the reference is not, or the reverse
  double max_abs = 0;               ///< largest absolute error of any finite element
  double rms = 0;                   ///< over all finite elements
  double max_lse = 0;
  double budget_share = 0;  ///< largest error / budget over rows; > 1 fails
  std::int64_t worst_row = -1, worst_column = -1;  ///< row = token * H + head; column -1: the LSE
  double worst_got = 0, worst_want = 0;
  double signed_bias = 0;  ///< mean of (got - want) / ulp over all elements
  std::string stage;       ///< what the worst share is of: "max", "rms", "lse", "nan"
  [[nodiscard]] bool passed() const noexcept { return failed_rows == 0 && nan_mismatches == 0; }
};

/// got and want are [rows, width]; lse spans may be empty (then unchecked) or [rows]; budgets [rows].
/// An infinite or NaN reference element must be met by the same kind of value.
[[nodiscard]] MLA_EXPORT ErrorReport compare_rows(std::span<const double> got, std::span<const double> want,
                                                  std::span<const double> got_lse, std::span<const double> want_lse,
                                                  std::int64_t width, std::span<const RowBudget> budgets,
                                                  DType out_dtype);

/// "23 % of budget (max); worst at row 5 (token 1, head 1) column 7: got 0.1235, want 0.1234".
[[nodiscard]] MLA_EXPORT std::string to_text(const ErrorReport& report, int num_heads);

}  // namespace mla
