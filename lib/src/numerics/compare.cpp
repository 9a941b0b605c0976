// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mla/error.hpp"
#include "mla/numerics.hpp"
#include "numerics/bias.hpp"
#include "numerics/pools.hpp"

namespace mla {
namespace {

/// What of `error` is more than the output's rounding explains, as a share of the budget; a budget of 0
/// forgives nothing.
double share_of(double error, double rounding, double budget) {
  if (error <= rounding) return 0.0;
  return budget > 0 ? (error - rounding) / budget : std::numeric_limits<double>::infinity();
}

bool same_kind(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want;  // infinities, with their sign
}

void check_sizes(std::span<const double> got, std::span<const double> want, std::span<const double> got_lse,
                 std::span<const double> want_lse, std::int64_t width, std::size_t rows,
                 const CompareOptions& options) {
  const auto elements = rows * static_cast<std::size_t>(std::max<std::int64_t>(width, 0));
  if (width < 1 || got.size() != elements || want.size() != elements) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("compare_rows: {} and {} elements are not {} rows of {}", got.size(), want.size(),
                            rows, width));
  }
  if (got_lse.size() != want_lse.size() || (!got_lse.empty() && got_lse.size() != rows)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("compare_rows: {} and {} LSE values for {} rows",
                                                         got_lse.size(), want_lse.size(), rows));
  }
  if (options.num_heads < 1 || rows % static_cast<std::size_t>(options.num_heads) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("compare_rows: {} rows are not a multiple of {} heads", rows, options.num_heads));
  }
}

/// What one row's elements say together.
struct RowSums {
  double squares = 0;   // of got - want
  double rounding = 0;  // of ulp^2: twelve times the variance of rounding to nearest
  double forced = 0;    // squares of round(want) - want: what even a perfect kernel shows
  std::int64_t finite = 0;
};

class Comparison {
 public:
  Comparison(DType out_dtype, std::int64_t width, const CompareOptions& options)
      : dtype_(out_dtype), options_(options), bias_(out_dtype, width) {}

  void row(std::int64_t r, std::span<const double> got, std::span<const double> want,
           const RowBudget& budget) {
    RowSums sums;
    row_failed_ = false;
    for (std::size_t c = 0; c < got.size(); ++c)
      element(r, static_cast<std::int64_t>(c), got[c], want[c], budget, sums);
    if (sums.finite > 0) row_rms(r, budget, sums);
    rows_.push_back(row_sample(budget, sums));
    if (sums.finite > 0)
      bias_.end_row(budget.drift / std::sqrt(sums.rounding / static_cast<double>(sums.finite)));
  }

  void lse(std::int64_t r, double got, double want, const RowBudget& budget) {
    if (!std::isfinite(got) || !std::isfinite(want)) {
      if (!same_kind(got, want)) mismatch(r, -1, got, want, budget);
      return;
    }
    const double error = std::abs(got - want);
    report_.max_lse = std::max(report_.max_lse, error);
    consider("lse", share_of(error, 0.0, budget.lse), r, -1, got, want, budget);
  }

  void end_row() {
    ++report_.rows;
    if (options_.keep_rows) report_.row_shares.push_back(row_share_);
    row_share_ = 0;
    if (row_failed_) ++report_.failed_rows;
  }

  ErrorReport finish() {
    if (elements_ > 0) report_.rms = std::sqrt(squares_ / static_cast<double>(elements_));
    if (options_.independent_rows) {
      judge_pools(rows_, options_, report_);
      bias_.judge(options_.limits, report_);
    }
    return report_;
  }

 private:
  void element(std::int64_t r, std::int64_t c, double got, double want, const RowBudget& budget,
               RowSums& sums) {
    const double ideal = round_to(dtype_, want);
    if (!std::isfinite(ideal) || !std::isfinite(got)) {
      if (!same_kind(got, ideal)) mismatch(r, c, got, want, budget);
      return;
    }
    const double error = got - want;
    const double places = got == ideal ? 0.0 : std::abs(got - ideal) / ulp_of(dtype_, ideal);
    ++report_.ulps[static_cast<std::size_t>(std::ranges::lower_bound(kUlpBins, places) - kUlpBins.begin())];
    const double ulp = ulp_of(dtype_, std::abs(want) + budget.max);
    report_.max_abs = std::max(report_.max_abs, std::abs(error));
    consider("max", share_of(std::abs(error), ulp / 2, budget.max), r, c, got, want, budget);
    sums.squares += error * error;
    sums.rounding += ulp * ulp;
    sums.forced += (ideal - want) * (ideal - want);
    if (options_.independent_rows && budget.max > 0) bias_.add(c, ideal, (got - ideal) / ulp);
    ++sums.finite;
  }

  void row_rms(std::int64_t r, const RowBudget& budget, const RowSums& sums) {
    const double n = static_cast<double>(sums.finite);
    const double error = std::sqrt(sums.squares / n);
    // The mean square of n rounding errors: ulp^2 / 12 give or take 0.894 / sqrt(n) of it, at most ulp^2 / 4.
    // Rounding an exact result is no chance: `forced` is what it must show. Nor is it chance where all exact
    // results lie on the output's grid (one key): an error that the row shares rounds all of them alike.
    const double chance =
        sums.forced == 0 ? 3.0 : std::min(3.0, 1.0 + options_.limits.sigmas * 0.894 / std::sqrt(n));
    const double rounding = std::sqrt(std::max(sums.rounding / 12 * chance, sums.forced) / n);
    consider("rms", share_of(error, rounding, budget.rms), r, -2, error, budget.rms + rounding, budget);
    squares_ += sums.squares;
    elements_ += sums.finite;
  }

  static RowSample row_sample(const RowBudget& budget, const RowSums& sums) {
    RowSample sample;
    if (sums.finite == 0) return sample;
    const double n = static_cast<double>(sums.finite);
    sample.counted = true;
    sample.square = sums.squares / n;
    sample.variance = budget.sigma * budget.sigma;
    sample.rounding = std::max(sums.rounding / 12, sums.forced) / n;
    sample.drift = budget.drift;
    return sample;
  }

  void consider(const char* stage, double share, std::int64_t r, std::int64_t c, double got, double want,
                const RowBudget& budget) {
    if (share > 1) row_failed_ = true;
    row_share_ = std::max(row_share_, share);
    if (report_.worst_row >= 0 && share <= report_.budget_share) return;
    if (report_.stage == "nan") return;
    report_.budget_share = share;
    place(stage, r, c, got, want, budget);
  }

  void mismatch(std::int64_t r, std::int64_t c, double got, double want, const RowBudget& budget) {
    row_failed_ = true;
    row_share_ = std::numeric_limits<double>::infinity();
    if (report_.nan_mismatches++ > 0) return;  // the first one is the place to look at
    report_.budget_share = std::numeric_limits<double>::infinity();
    place("nan", r, c, got, want, budget);
  }

  void place(const char* stage, std::int64_t r, std::int64_t c, double got, double want,
             const RowBudget& budget) {
    report_.stage = stage;
    report_.worst_row = r;
    report_.worst_column = c;
    report_.worst_got = got;
    report_.worst_want = want;
    report_.worst_ulp = c < 0 ? 0.0 : (got - want) / ulp_of(dtype_, want);
    report_.dominant = budget.dominant;
  }

  DType dtype_;
  const CompareOptions& options_;
  ErrorReport report_;
  std::vector<RowSample> rows_;
  BiasCheck bias_;
  double squares_ = 0;
  std::int64_t elements_ = 0;
  double row_share_ = 0;
  bool row_failed_ = false;
};

}  // namespace

ErrorReport compare_rows(std::span<const double> got, std::span<const double> want,
                         std::span<const double> got_lse, std::span<const double> want_lse,
                         std::int64_t width, std::span<const RowBudget> budgets, DType out_dtype,
                         const CompareOptions& options) {
  check_sizes(got, want, got_lse, want_lse, width, budgets.size(), options);
  Comparison comparison(out_dtype, width, options);
  const auto w = static_cast<std::size_t>(width);
  for (std::size_t r = 0; r < budgets.size(); ++r) {
    const auto row = static_cast<std::int64_t>(r);
    comparison.row(row, got.subspan(r * w, w), want.subspan(r * w, w), budgets[r]);
    if (!got_lse.empty()) comparison.lse(row, got_lse[r], want_lse[r], budgets[r]);
    comparison.end_row();
  }
  return comparison.finish();
}

}  // namespace mla
