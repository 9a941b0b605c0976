// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/backend.hpp"
#include "mla/export.h"
#include "mla/reference.hpp"

/// Judging an attention result row by row, a row being one (token, head): never tensor-wide, where one wrong
/// request hides among many right ones. The limits are computed from the case; docs/numerics.md derives each
/// term.
namespace mla {

/// Distance between neighbouring values of `dtype` at magnitude |x| (subnormal spacing below the smallest
/// normal value). Integer types: 1.
[[nodiscard]] MLA_EXPORT double ulp_of(DType dtype, double x) noexcept;

/// Where the error of a row may come from.
enum class ErrorSource : std::uint8_t {
  kScores,         ///< rounding of q.k, of the absorbed query or of expanded keys, through the softmax
  kProbabilities,  ///< rounding of P before P.V
  kPartials,       ///< rounding of split outputs before the merge
  kProjection,     ///< rounding of expanded values or of the latent output, and the sums of W_UV
  kAccumulation,   ///< sums over keys and the merge
  kOutput,         ///< rounding to the output type
};
/// "scores", "P rounding", "partials", "projection", "accumulation", "output rounding".
[[nodiscard]] MLA_EXPORT std::string_view name_of(ErrorSource source) noexcept;

/// The constants of judgement; docs/numerics.md says where each comes from. The programs read them from
/// configs/verify/limits.json, which holds these very numbers.
struct Limits {
  double sigmas = 5.0;              ///< random rounding errors: limit in standard deviations
  double score_units = 8.0;         ///< u of a score's error whatever its size: exp, log, the softmax's sum
  double sum_base = 8.0;            ///< u of a sum over keys: sum_base + keys * sum_per_key
  double sum_per_key = 1.0 / 16.0;  ///< one rounding an MMA step of 16 keys
  double bias_floor = 0.02;         ///< bias that is never an alarm, in ulp
  double bias_sigmas = 5.0;         ///< standard errors a mean may lie from 0
  int bias_samples = 32;            ///< fewest independent samples for which a bias is judged
  friend bool operator==(const Limits&, const Limits&) = default;
};

/// What a row may differ from the fp64 reference *before* it is rounded to the output type; compare_rows adds
/// that last rounding element by element, so a row with budget 0 must be the reference rounded.
struct RowBudget {
  double max = 0;    ///< largest |got - want| of an element
  double rms = 0;    ///< root mean square of got - want over the row
  double sigma = 0;  ///< random part of rms, one standard deviation: averages out over rows
  double drift = 0;  ///< systematic part of rms: does not average out
  double lse = 0;    ///< |lse - want|, rounding of the stored LSE included
  ErrorSource dominant = ErrorSource::kOutput;  ///< largest term of `max`
};

/// Allowed error of one row from the case itself, for a kernel that rounds where `profile` says. `stats` must
/// come from the form that the kernel computes (expanded, absorbed or latent). `want` is the reference row,
/// `want_lse` its LSE.
[[nodiscard]] MLA_EXPORT RowBudget row_budget(const reference::RowStats& stats,
                                              const RoundingProfile& profile, const AttentionShape& shape,
                                              double softmax_scale, std::span<const double> want,
                                              double want_lse, const Limits& limits = {});

/// One term of RowBudget::max.
struct BudgetTerm {
  ErrorSource source = ErrorSource::kOutput;
  double max = 0;
  std::string formula;  ///< in the symbols of docs/numerics.md: "2 ds spread"
  std::string numbers;  ///< the same with its numbers, or why the term is 0
};

/// The terms that row_budget adds up to RowBudget::max for the same arguments, in the order of ErrorSource; none
/// for a row without keys, which is exact. For people: row_budget does not use the texts.
[[nodiscard]] MLA_EXPORT std::vector<BudgetTerm> budget_terms(
    const reference::RowStats& stats, const RoundingProfile& profile, const AttentionShape& shape,
    double softmax_scale, std::span<const double> want, const Limits& limits = {});

/// row_budget for every row of a reference result; `stats` of the form the kernel computes, [tokens, H].
[[nodiscard]] MLA_EXPORT std::vector<RowBudget> row_budgets(const reference::AttentionOutput& want,
                                                            std::span<const reference::RowStats> stats,
                                                            const RoundingProfile& profile,
                                                            const AttentionShape& shape, double softmax_scale,
                                                            const Limits& limits = {});

/// What compare_rows may use beyond single rows.
struct CompareOptions {
  int num_heads = 1;                           ///< row = token * num_heads + head
  std::span<const std::int32_t> cu_seqlens_q;  ///< [requests + 1] or empty: one request
  /// Rows carry independent random inputs: pooled limits (whole case, each request, each head) and the bias
  /// check apply. False for crafted inputs, where equal rows have equal errors and nothing averages out.
  bool independent_rows = false;
  bool keep_rows = false;  ///< fill ErrorReport::row_shares
  Limits limits{};         ///< of pools and bias
};

/// Upper ends of the bins of ErrorReport::ulps; the last bin has no end.
inline constexpr std::array<double, 6> kUlpBins = {0, 1, 2, 4, 8, 16};
using UlpCounts = std::array<std::int64_t, kUlpBins.size() + 1>;

/// Outcome of a comparison. `worst_*` locate the element (or LSE) with the largest share of its budget.
struct ErrorReport {
  std::int64_t rows = 0;
  std::int64_t failed_rows = 0;
  std::int64_t nan_mismatches =
      0;               ///< elements that are NaN or Inf where the reference is not, or the reverse
  double max_abs = 0;  ///< largest absolute error of any finite element
  double rms = 0;      ///< over all finite elements
  double max_lse = 0;
  double budget_share = 0;  ///< largest error / budget over rows and pools; > 1 fails
  std::int64_t worst_row = -1,
               worst_column = -1;  ///< row = token * H + head; column -1: the LSE, -2: the row's RMS
  double worst_got = 0, worst_want = 0;
  double worst_ulp = 0;     ///< (got - want) in units of the output type's last place
  double pooled_share = 0;  ///< largest error / limit over pools of rows
  std::string pool;         ///< the pool of pooled_share: "all rows", "request 3", "head 7"
  /// Finite elements by |got - round(want)| in places of the output type, as kUlpBins has them. For people: a place is
  /// much of a small budget and nothing of a large one, so nothing is judged by it.
  UlpCounts ulps{};
  /// Mean of (got - round(want)) / ulp over all elements whose rows need not be exact; with independent_rows.
  double signed_bias = 0;
  double magnitude_bias = 0;  ///< the same with the sign of want: negative when results are cut towards zero
  bool biased = false;        ///< one of the two lies outside what chance and drift allow
  std::string stage;          ///< what budget_share is of: "max", "rms", "lse", "pooled", "bias", "nan"
  ErrorSource dominant = ErrorSource::kOutput;  ///< largest term of the worst row's budget
  std::vector<double> row_shares;               ///< each row's largest error / budget, if asked for
  [[nodiscard]] bool passed() const noexcept {
    return failed_rows == 0 && nan_mismatches == 0 && pooled_share <= 1 && !biased;
  }
};

/// got and want are [rows, width]; lse spans may be empty (then unchecked) or [rows]; budgets [rows].
/// An infinite or NaN reference element must be met by the same kind of value. Throws kInvalidArgument if the
/// sizes do not fit together.
[[nodiscard]] MLA_EXPORT ErrorReport compare_rows(std::span<const double> got, std::span<const double> want,
                                                  std::span<const double> got_lse,
                                                  std::span<const double> want_lse, std::int64_t width,
                                                  std::span<const RowBudget> budgets, DType out_dtype,
                                                  const CompareOptions& options = {});

/// "23 % of budget (max, mostly P rounding); worst at row 5 (token 1, head 1) column 7: got 0.1235, want
/// 0.1234 (0.4 ulp)".
[[nodiscard]] MLA_EXPORT std::string to_text(const ErrorReport& report, int num_heads);

}  // namespace mla
