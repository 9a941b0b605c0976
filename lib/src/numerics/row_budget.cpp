// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mla/error.hpp"
#include "mla/numerics.hpp"
#include "numerics/limits.hpp"

namespace mla {
namespace {

/// One source of error of a row: what the largest element and the row's RMS may show of it.
struct Term {
  ErrorSource source = ErrorSource::kOutput;
  double max = 0;
  double rms = 0;
  double sigma = 0;  ///< random: standard deviation of the RMS
  double drift = 0;  ///< systematic: part of the RMS that does not average out
};

/// Rounding errors are independent and bounded: `z` standard deviations, but never more than if all went one
/// way.
Term random_term(ErrorSource source, double unit, double max_spread, double rms_spread, double max_bound,
                 double rms_bound) {
  const double sigma = unit * limits::kUniform;
  Term term;
  term.source = source;
  term.max = std::min(limits::kSigmas * sigma * max_spread, unit * max_bound);
  term.rms = std::min(limits::kSigmas * sigma * rms_spread, unit * rms_bound);
  term.sigma = sigma * rms_spread;
  return term;
}

Term systematic_term(ErrorSource source, double max, double rms) {
  return {source, max, rms, 0.0, rms};
}

/// `dtype` rounds more coarsely than the arithmetic around it: storing in it is a rounding point of its own.
bool rounds(DType dtype, DType arithmetic) {
  return unit_roundoff(dtype) > unit_roundoff(arithmetic);
}

double rms_of(std::span<const double> row) {
  double sum = 0;
  for (const double x : row) sum += x * x;
  return row.empty() ? 0.0 : std::sqrt(sum / static_cast<double>(row.size()));
}

double max_of(std::span<const double> row) {
  double max = 0;
  for (const double x : row) max = std::max(max, std::abs(x));
  return max;
}

/// Unit roundoff of the type in which the backend rounds its operands of q.k, or 0.
double score_operand_unit(const RoundingProfile& profile, const AttentionShape& shape, bool absorbed) {
  if (shape.space == QuerySpace::kLatent) return 0.0;
  const DType operand = absorbed ? profile.absorbed_query : profile.expanded_kv;
  return rounds(operand, profile.accumulate) ? unit_roundoff(operand) : 0.0;
}

}  // namespace

std::string_view name_of(ErrorSource source) noexcept {
  switch (source) {
    case ErrorSource::kScores:
      return "scores";
    case ErrorSource::kProbabilities:
      return "P rounding";
    case ErrorSource::kPartials:
      return "partials";
    case ErrorSource::kProjection:
      return "projection";
    case ErrorSource::kAccumulation:
      return "accumulation";
    case ErrorSource::kOutput:
      return "output rounding";
  }
  return "unknown";
}

RowBudget row_budget(const reference::RowStats& stats, const RoundingProfile& profile,
                     const AttentionShape& shape, double softmax_scale, std::span<const double> want,
                     double want_lse) {
  RowBudget budget;
  if (stats.num_keys == 0) return budget;  // output 0 and LSE -inf, exactly

  const bool head = shape.space == QuerySpace::kHead;
  const bool absorbed = head && stats.max_up_dot > 0;
  const bool one_key = stats.num_keys == 1;  // its weight is exactly 1
  const double keys = static_cast<double>(stats.num_keys);
  // The reference itself rounds in double: visible only when the backend does so, too.
  const double unit = unit_roundoff(profile.accumulate) + unit_roundoff(DType::kF64);

  const double score = limits::kDotUnits * unit * (1.0 + softmax_scale * stats.max_abs_dot);
  const double operand =
      score_operand_unit(profile, shape, absorbed) * limits::kUniform * softmax_scale * stats.max_rms_dot;
  const DType lse_type = shape.out_dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  budget.lse = score + unit * std::sqrt(keys) + limits::kSigmas * operand +
               unit_roundoff(lse_type) * std::abs(want_lse);
  if (profile.lse_from_rounded_p) budget.lse += unit_roundoff(profile.probabilities);

  const double out_rms = rms_of(want);
  const double out_max = max_of(want);
  std::array<Term, 6> terms;
  std::size_t count = 0;

  // A score off by ds moves the output by at most 2 max|ds| sum_j w_j |v_j - o|; 0 for one key.
  Term scores =
      systematic_term(ErrorSource::kScores, 2 * score * stats.max_spread, 2 * score * stats.rms_spread);
  scores.max += 2 * limits::kSigmas * operand * stats.max_spread;
  scores.rms += 2 * limits::kSigmas * operand * stats.rms_spread;
  scores.sigma = operand * stats.rms_spread;
  terms[count++] = scores;

  if (!one_key) {
    Term p = random_term(ErrorSource::kProbabilities, unit_roundoff(profile.probabilities), stats.max_p_round,
                         stats.rms_p_round, stats.max_weighted_v, stats.rms_weighted_v);
    if (profile.probabilities == DType::kF16) {  // what lies below half of f16's smallest denormal is lost
      p.max += keys * 0x1p-25 * stats.max_weighted_v;
      p.rms += keys * 0x1p-25 * stats.rms_weighted_v;
    }
    terms[count++] = p;
  }
  if (rounds(profile.partials, profile.accumulate)) {
    terms[count++] =
        random_term(ErrorSource::kPartials, unit_roundoff(profile.partials), stats.max_p_round + out_max,
                    stats.rms_p_round + out_rms, stats.max_weighted_v, stats.rms_weighted_v);
  }
  if (head) {
    // W_UV's sums. Expanded: over L terms in each value; absorbed: over L terms in each output.
    const double root = std::sqrt(static_cast<double>(shape.dims.kv_lora_rank));
    const double dot = limits::kDotUnits * unit;
    terms[count] =
        absorbed ? systematic_term(ErrorSource::kProjection, dot * stats.max_up_dot, dot * stats.max_up_dot)
                 : systematic_term(ErrorSource::kProjection, dot * root * (stats.max_p_round + out_max),
                                   dot * root * (stats.rms_p_round + out_rms));
    const DType rounded = absorbed ? profile.latent_output : profile.expanded_kv;
    if (rounds(rounded, profile.accumulate)) {
      const double u = unit_roundoff(rounded);
      const Term r = absorbed ? random_term(ErrorSource::kProjection, u, stats.max_up_dot, stats.rms_up_round,
                                            stats.max_up_dot, stats.max_up_dot)
                              : random_term(ErrorSource::kProjection, u, stats.max_p_round, stats.rms_p_round,
                                            stats.max_weighted_v, stats.rms_weighted_v);
      terms[count].max += r.max;
      terms[count].rms += r.rms;
      terms[count].sigma += r.sigma;
    }
    ++count;
  }
  if (!one_key || head) {
    const double steps = unit * (limits::kSumBase + keys * limits::kSumPerKey);
    terms[count++] = systematic_term(ErrorSource::kAccumulation, steps * (out_max + 2 * stats.max_p_round),
                                     steps * (out_rms + 2 * stats.rms_p_round));
  }

  double variance = 0;
  double largest = 0.5 * ulp_of(shape.out_dtype, out_max);
  for (const Term& term : std::span(terms).first(count)) {
    budget.max += term.max;
    budget.rms += term.rms;
    budget.drift += term.drift;
    variance += term.sigma * term.sigma;
    if (term.max > largest) {
      largest = term.max;
      budget.dominant = term.source;
    }
  }
  budget.sigma = std::sqrt(variance);
  return budget;
}

std::vector<RowBudget> row_budgets(const reference::AttentionOutput& want,
                                   std::span<const reference::RowStats> stats, const RoundingProfile& profile,
                                   const AttentionShape& shape, double softmax_scale) {
  const std::size_t rows = want.lse.size();
  if (stats.size() != rows) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} rows of statistics for {} rows of output; row_stats must be asked for",
                            stats.size(), rows));
  }
  const std::size_t width = rows == 0 ? 0 : want.out.size() / rows;
  std::vector<RowBudget> budgets(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    budgets[r] = row_budget(stats[r], profile, shape, softmax_scale,
                            std::span(want.out).subspan(r * width, width), want.lse[r]);
  }
  return budgets;
}

}  // namespace mla
