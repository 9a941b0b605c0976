// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

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
Term random_term(ErrorSource source, double sigmas, double unit, double max_spread, double rms_spread,
                 double max_bound, double rms_bound) {
  const double sigma = unit * limits::kUniform;
  Term term;
  term.source = source;
  term.max = std::min(sigmas * sigma * max_spread, unit * max_bound);
  term.rms = std::min(sigmas * sigma * rms_spread, unit * rms_bound);
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

/// The terms of one row, each derived in docs/numerics.md under its name.
class Row {
 public:
  Row(const reference::RowStats& stats, const RoundingProfile& profile, const AttentionShape& shape,
      double scale, std::span<const double> want, const Limits& limits)
      : limits_(limits),
        stats_(stats),
        profile_(profile),
        dims_(shape.dims),
        head_(shape.space == QuerySpace::kHead),
        absorbed_(head_ && stats.max_up_dot > 0),
        scale_(scale),
        keys_(static_cast<double>(stats.num_keys)),
        // The reference itself rounds in double: visible only when the backend does so, too.
        unit_(unit_roundoff(profile.accumulate) + unit_roundoff(DType::kF64)),
        out_max_(max_of(want)),
        out_rms_(rms_of(want)) {}

  /// Error of a score from the arithmetic: the sum of its products and what leads to its operands, the scale.
  [[nodiscard]] double score_arithmetic() const {
    return unit_ * (limits_.score_units + 2 * stats_.max_abs_score +
                    walk(score_steps()) * scale_ * stats_.max_rms_dot);
  }

  /// Standard deviation of a score's error from operands stored in a coarser type: the absorbed query or the
  /// keys.
  [[nodiscard]] double score_operands() const {
    if (!head_) return 0.0;
    const DType operand = absorbed_ ? profile_.absorbed_query : profile_.expanded_kv;
    if (!rounds(operand, profile_.accumulate)) return 0.0;
    return unit_roundoff(operand) * limits::kUniform * scale_ * stats_.max_rms_dot;
  }

  [[nodiscard]] double lse(DType type, double want) const {
    double allowed = score_arithmetic() + unit_ * walk(keys_) + limits_.sigmas * score_operands() +
                     unit_roundoff(type) * std::abs(want);
    if (profile_.lse_from_rounded_p) allowed += unit_roundoff(profile_.probabilities);
    return allowed;
  }

  /// A score off by ds moves the output by at most 2 max|ds| sum_j w_j |v_j - o|: nothing for one key.
  [[nodiscard]] Term scores() const {
    const double fixed = 2 * score_arithmetic();
    const double random = score_operands();
    Term term = systematic_term(ErrorSource::kScores, fixed * stats_.max_spread, fixed * stats_.rms_spread);
    term.max += 2 * limits_.sigmas * random * stats_.max_spread;
    term.rms += 2 * limits_.sigmas * random * stats_.rms_spread;
    term.sigma = random * stats_.rms_spread;
    return term;
  }

  [[nodiscard]] Term probabilities() const {
    if (weighs_one()) return {ErrorSource::kProbabilities};
    Term term =
        random_term(ErrorSource::kProbabilities, limits_.sigmas, unit_roundoff(profile_.probabilities),
                    stats_.max_p_round, stats_.rms_p_round, stats_.max_weighted_v, stats_.rms_weighted_v);
    if (profile_.probabilities == DType::kF16) {  // what lies below half of f16's smallest denormal is lost
      term.max += keys_ * 0x1p-25 * stats_.max_weighted_v;
      term.rms += keys_ * 0x1p-25 * stats_.rms_weighted_v;
    }
    return term;
  }

  [[nodiscard]] Term partials() const {
    if (!rounds(profile_.partials, profile_.accumulate)) return {ErrorSource::kPartials};
    Term term = random_term(ErrorSource::kPartials, limits_.sigmas, unit_roundoff(profile_.partials),
                            stats_.max_p_round + out_max_, stats_.rms_p_round + out_rms_,
                            stats_.max_weighted_v, stats_.rms_weighted_v);
    add_subnormal(term, profile_.partials, head_);
    return term;
  }

  /// W_UV's sums over L, and the type in which their operand (latent output) or result (expanded values) is
  /// stored.
  [[nodiscard]] Term projection() const {
    if (!head_) return {ErrorSource::kProjection};
    const double sums = projection_sums();
    const DType stored = projection_stored();
    const double u = rounds(stored, profile_.accumulate) ? unit_roundoff(stored) : 0.0;
    Term sum, store;
    if (absorbed_) {
      sum = systematic_term(ErrorSource::kProjection, sums * stats_.max_up_round, sums * stats_.rms_up_round);
      store = random_term(ErrorSource::kProjection, limits_.sigmas, u, stats_.max_up_round,
                          stats_.rms_up_round, stats_.max_up_dot, stats_.max_up_dot);
    } else {
      sum = systematic_term(ErrorSource::kProjection, sums * (stats_.max_p_round + out_max_),
                            sums * (stats_.rms_p_round + out_rms_));
      store = random_term(ErrorSource::kProjection, limits_.sigmas, u,
                          stats_.max_p_round + shared() * stats_.max_weighted_v,
                          stats_.rms_p_round + shared() * stats_.rms_weighted_v, stats_.max_weighted_v,
                          stats_.rms_weighted_v);
    }
    if (u > 0) add_subnormal(store, stored, absorbed_);
    store.max += sum.max;
    store.rms += sum.rms;
    store.drift += sum.drift;
    return store;
  }

  [[nodiscard]] Term accumulation() const {
    if (!head_ && weighs_one()) return {ErrorSource::kAccumulation};
    const double steps = unit_ * (limits_.sum_base + keys_ * limits_.sum_per_key);
    return systematic_term(ErrorSource::kAccumulation, tiny() + steps * (out_max_ + 2 * stats_.max_p_round),
                           tiny() + steps * (out_rms_ + 2 * stats_.rms_p_round));
  }

  [[nodiscard]] std::array<Term, 5> terms() const {
    return {scores(), probabilities(), partials(), projection(), accumulation()};
  }
  [[nodiscard]] double out_max() const noexcept { return out_max_; }

  /// The arithmetic of the term's `max` above: in symbols, and with numbers.
  [[nodiscard]] std::pair<std::string, std::string> arithmetic(ErrorSource source) const {
    const double z = limits_.sigmas;
    switch (source) {
      case ErrorSource::kScores: {
        std::string symbols = "2 ds spread, ds = u (8 + 2 max|s| + walk(D) scale max_rms_dot)";
        std::string numbers =
            fmt::format("2 x {:.3g} x {:.3g}, ds = {:.3g} x ({:g} + 2 x {:.3g} + {:.3g} x {:.3g} x {:.3g})",
                        score_arithmetic(), stats_.max_spread, unit_, limits_.score_units,
                        stats_.max_abs_score, walk(score_steps()), scale_, stats_.max_rms_dot);
        if (score_operands() > 0) {
          symbols += "; + 2 z sd spread, sd = u'/sqrt(3) scale max_rms_dot";
          numbers += fmt::format("; + 2 x {:g} x {:.3g} x {:.3g}", z, score_operands(), stats_.max_spread);
        }
        return {symbols, numbers};
      }
      case ErrorSource::kProbabilities: {
        const double u = unit_roundoff(profile_.probabilities);
        std::string symbols = "min(z u_P/sqrt(3) p_round, u_P weighted_v)";
        if (weighs_one()) return {symbols, "one key: its weight is exactly 1"};
        std::string numbers = bounded(u, stats_.max_p_round, stats_.max_weighted_v);
        if (profile_.probabilities == DType::kF16) {
          symbols += " + N 2^-25 weighted_v";
          numbers += fmt::format(" + {:g} x 2^-25 x {:.3g}", keys_, stats_.max_weighted_v);
        }
        return {symbols, numbers};
      }
      case ErrorSource::kPartials: {
        std::string symbols = "min(z u_part/sqrt(3) (p_round + |o|), u_part weighted_v)";
        if (!rounds(profile_.partials, profile_.accumulate)) {
          return {symbols,
                  fmt::format("partial results are kept in {}: not rounded", name_of(profile_.partials))};
        }
        return {
            symbols + " + lost subnormals",
            bounded(unit_roundoff(profile_.partials), stats_.max_p_round + out_max_, stats_.max_weighted_v) +
                lost(profile_.partials, head_)};
      }
      case ErrorSource::kProjection:
        return projection_arithmetic();
      case ErrorSource::kAccumulation:
        if (!head_ && weighs_one()) {
          return {"u (8 + N/16) (|o| + 2 p_round)", "one key: nothing is added up"};
        }
        return {
            "u (8 + N/16) (|o| + 2 p_round) + lost subnormals",
            fmt::format("{:.3g} x ({:g} + {:g} x {:g}) x ({:.3g} + 2 x {:.3g}) + {:.3g}", unit_,
                        limits_.sum_base, keys_, limits_.sum_per_key, out_max_, stats_.max_p_round, tiny())};
      case ErrorSource::kOutput:
        break;
    }
    return {"half a place, element by element", "added by the comparison"};
  }

 private:
  /// Additions on the way to a score.
  [[nodiscard]] double score_steps() const {
    return head_ ? dims_.qk_nope_head_dim + dims_.kv_lora_rank + dims_.qk_rope_head_dim
                 : dims_.latent_width();
  }
  /// The weight of the only key is exactly 1.
  [[nodiscard]] bool weighs_one() const { return stats_.num_keys == 1 && profile_.unit_weight; }
  [[nodiscard]] double projection_sums() const { return unit_ * walk(dims_.kv_lora_rank); }
  /// Type in which W_UV's operand (latent output) or result (expanded values) is stored.
  [[nodiscard]] DType projection_stored() const {
    return absorbed_ ? profile_.latent_output : profile_.expanded_kv;
  }
  [[nodiscard]] std::string bounded(double unit, double spread, double bound) const {
    return fmt::format("min({:g} x {:.3g}/sqrt(3) x {:.3g}, {:.3g} x {:.3g})", limits_.sigmas, unit, spread,
                       unit, bound);
  }
  [[nodiscard]] std::string lost(DType stored, bool projected) const {
    Term term;
    add_subnormal(term, stored, projected);
    return fmt::format(" + {:.3g}", term.max);
  }
  [[nodiscard]] std::pair<std::string, std::string> projection_arithmetic() const {
    if (!head_) return {"u walk(L) up_round", "latent space: W_UV is not applied"};
    const double sums = projection_sums();
    const DType stored = projection_stored();
    const bool stores = rounds(stored, profile_.accumulate);
    const double u = unit_roundoff(stored);
    std::string symbols = absorbed_ ? "u walk(L) up_round" : "u walk(L) (p_round + |o|)";
    std::string numbers = absorbed_
                              ? fmt::format("{:.3g} x {:.3g}", sums, stats_.max_up_round)
                              : fmt::format("{:.3g} x ({:.3g} + {:.3g})", sums, stats_.max_p_round, out_max_);
    if (!stores) return {symbols, numbers};
    symbols += absorbed_
                   ? " + min(z u'/sqrt(3) up_round, u' up_dot) + lost subnormals"
                   : " + min(z u'/sqrt(3) (p_round + shared weighted_v), u' weighted_v) + lost subnormals";
    numbers += " + " +
               (absorbed_ ? bounded(u, stats_.max_up_round, stats_.max_up_dot)
                          : bounded(u, stats_.max_p_round + shared() * stats_.max_weighted_v,
                                    stats_.max_weighted_v)) +
               lost(stored, absorbed_);
    return {symbols, numbers};
  }
  /// Equal values are rounded equally: what keys have in common errs together, however many there are.
  [[nodiscard]] double shared() const {
    return stats_.max_weighted_v > 0 ? std::max(0.0, 1.0 - stats_.max_spread / stats_.max_weighted_v) : 0.0;
  }
  /// Sums of single-precision subnormals lose half a place of those at every addition, however small they are.
  [[nodiscard]] double tiny() const {
    return profile_.accumulate == DType::kF64
               ? 0.0
               : limits::kTiniest * (limits_.sum_base + keys_ + (head_ ? dims_.kv_lora_rank : 0));
  }
  /// What is stored in a coarser type loses half a place of its subnormals, however small it is. `projected`:
  /// W_UV
  /// follows, whose rows have a norm of about 1: sum |W| is at most sqrt(L) of it, and twice that is allowed.
  void add_subnormal(Term& term, DType stored, bool projected) const {
    const double lost = 0.5 * ulp_of(stored, 0.0) * (projected ? 2 * std::sqrt(dims_.kv_lora_rank) : 1.0);
    term.max += lost;
    term.rms += lost;
  }

  /// How far the rounding errors of `steps` additions walk, in units of u times the largest partial sum.
  [[nodiscard]] double walk(double steps) const {
    return limits_.sigmas * limits::kUniform * std::sqrt(steps);
  }

  const Limits& limits_;
  const reference::RowStats& stats_;
  const RoundingProfile& profile_;
  const MlaDims& dims_;
  bool head_, absorbed_;
  double scale_, keys_, unit_, out_max_, out_rms_;
};

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
                     double want_lse, const Limits& limits) {
  RowBudget budget;
  if (stats.num_keys == 0) return budget;  // output 0 and LSE -inf, exactly
  const Row row(stats, profile, shape, softmax_scale, want, limits);
  budget.lse = row.lse(shape.out_dtype == DType::kF64 ? DType::kF64 : DType::kF32, want_lse);
  double variance = 0;
  double largest = 0.5 * ulp_of(shape.out_dtype, row.out_max());
  for (const Term& term : row.terms()) {
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

std::vector<BudgetTerm> budget_terms(const reference::RowStats& stats, const RoundingProfile& profile,
                                     const AttentionShape& shape, double softmax_scale,
                                     std::span<const double> want, const Limits& limits) {
  std::vector<BudgetTerm> terms;
  if (stats.num_keys == 0) return terms;
  const Row row(stats, profile, shape, softmax_scale, want, limits);
  for (const Term& term : row.terms()) {
    auto [formula, numbers] = row.arithmetic(term.source);
    terms.push_back({term.source, term.max, std::move(formula), std::move(numbers)});
  }
  return terms;
}

std::vector<RowBudget> row_budgets(const reference::AttentionOutput& want,
                                   std::span<const reference::RowStats> stats, const RoundingProfile& profile,
                                   const AttentionShape& shape, double softmax_scale, const Limits& limits) {
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
                            std::span(want.out).subspan(r * width, width), want.lse[r], limits);
  }
  return budgets;
}

}  // namespace mla
