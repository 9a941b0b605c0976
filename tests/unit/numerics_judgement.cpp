// SPDX-License-Identifier: Apache-2.0
#include "mla/numerics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mla/error.hpp"
#include "mla/random.hpp"

namespace mla {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

AttentionShape latent_shape(DType out) {
  AttentionShape shape;
  shape.dims = {4, 32, 8, 16, 16};
  shape.batch = {{1, 8}};
  shape.out_dtype = out;
  return shape;
}

TEST(Ulp, FollowsTheGridOfEachType) {
  EXPECT_EQ(ulp_of(DType::kBF16, 1.0), 0x1p-7);
  EXPECT_EQ(ulp_of(DType::kBF16, -1.99), 0x1p-7);
  EXPECT_EQ(ulp_of(DType::kBF16, 2.0), 0x1p-6);
  EXPECT_EQ(ulp_of(DType::kF16, 1.0), 0x1p-10);
  EXPECT_EQ(ulp_of(DType::kF32, 1.0), 0x1p-23);
  EXPECT_EQ(ulp_of(DType::kF64, 1.0), 0x1p-52);
  EXPECT_EQ(ulp_of(DType::kE4M3, 1.0), 0x1p-3);
  EXPECT_EQ(ulp_of(DType::kF16, 0.0), 0x1p-24) << "denormals";
  EXPECT_EQ(ulp_of(DType::kE4M3, 1e-9), 0x1p-9) << "denormals";
  EXPECT_EQ(ulp_of(DType::kI32, 1e9), 1.0);
}

TEST(Ulp, IsTwiceTheRoundoffAtOne) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3}) {
    EXPECT_EQ(ulp_of(t, 1.0), 2 * unit_roundoff(t)) << name_of(t);
  }
}

TEST(RowBudget, OneKeyOfALatentKernelMayNotErr) {
  reference::RowStats stats;
  stats.num_keys = 1;
  stats.max_abs_dot = 50;
  stats.max_weighted_v = stats.rms_weighted_v = stats.max_p_round = stats.rms_p_round = 1;
  RoundingProfile profile;
  profile.probabilities = DType::kBF16;
  const std::vector<double> want{1.0, -0.5};
  const RowBudget budget = row_budget(stats, profile, latent_shape(DType::kBF16), 0.1, want, 3.0);
  EXPECT_EQ(budget.max, 0);
  EXPECT_EQ(budget.rms, 0);
  EXPECT_GT(budget.lse, 0) << "the score of the key still carries the error of a dot product";
}

TEST(RowBudget, AnEmptyRowMayNotErrAtAll) {
  const std::vector<double> want{0.0, 0.0};
  const RowBudget budget = row_budget({}, {}, latent_shape(DType::kBF16), 0.1, want, -kInf);
  EXPECT_EQ(budget.max + budget.rms + budget.lse, 0);
}

reference::RowStats many_keys() {
  reference::RowStats stats;
  stats.num_keys = 1000;
  stats.max_abs_dot = 100;
  stats.max_rms_dot = 5;
  stats.rms_weighted_v = 0.8;
  stats.max_weighted_v = 0.9;
  stats.rms_spread = 0.8;
  stats.max_spread = 0.9;
  stats.rms_p_round = 0.03;
  stats.max_p_round = 0.04;
  return stats;
}

TEST(RowBudget, ItsTermsAddUpAndShowTheirNumbers) {
  const std::vector<double> want(16, 0.03);
  AttentionShape head = latent_shape(DType::kBF16);
  head.space = QuerySpace::kHead;
  reference::RowStats absorbed = many_keys();
  absorbed.max_up_dot = 0.4;
  absorbed.max_up_round = absorbed.rms_up_round = 0.03;
  RoundingProfile profile;
  profile.probabilities = profile.absorbed_query = profile.latent_output = DType::kBF16;
  for (const auto& [stats, shape] : {std::pair(many_keys(), latent_shape(DType::kBF16)),
                                     std::pair(absorbed, head), std::pair(many_keys(), head)}) {
    const std::vector<BudgetTerm> terms = budget_terms(stats, profile, shape, 0.1, want);
    ASSERT_EQ(terms.size(), 5U);
    double sum = 0;
    for (const BudgetTerm& term : terms) {
      sum += term.max;
      EXPECT_FALSE(term.formula.empty() || term.numbers.empty()) << name_of(term.source);
    }
    EXPECT_DOUBLE_EQ(sum, row_budget(stats, profile, shape, 0.1, want, 7.0).max);
    EXPECT_EQ(terms[1].source, ErrorSource::kProbabilities);
    // 5 x 2^-8 / sqrt(3) x 0.04 = 0.000451, less than 2^-8 x 0.9.
    EXPECT_EQ(terms[1].numbers, "min(5 x 0.00391/sqrt(3) x 0.04, 0.00391 x 0.9)");
    EXPECT_NEAR(terms[1].max, 0.000451, 1e-6);
    EXPECT_EQ(terms[2].max, 0);
    EXPECT_EQ(terms[2].numbers, "partial results are kept in f32: not rounded");
  }
  EXPECT_TRUE(budget_terms({}, profile, head, 0.1, want).empty()) << "no keys: exact";
}

TEST(CompareRows, CountsElementsByPlaces) {
  // bf16 has places of 2^-7 from 1 to 2. 1.003 is 1 when it is rounded.
  const double place = 0x1p-7;
  const std::vector<double> want = {1, 1.003, 1, 1, 1, 1, 1, kInf};
  const std::vector<double> got = {
      1, 1, 1 - place / 2, 1 + 2 * place, 1 + 4 * place, 1 + 9 * place, 1 + 17 * place, kInf};
  const RowBudget wide{.max = 1, .rms = 1};
  const ErrorReport report = compare_rows(got, want, {}, {}, 8, std::span(&wide, 1), DType::kBF16);
  EXPECT_EQ(report.ulps, (UlpCounts{2, 1, 1, 1, 0, 1, 1})) << "infinities are not counted";
}

TEST(RowBudget, GrowsWithEveryDeclaredRounding) {
  const std::vector<double> want(16, 0.03);
  const AttentionShape latent = latent_shape(DType::kBF16);
  AttentionShape head = latent;
  head.space = QuerySpace::kHead;
  const reference::RowStats stats = many_keys();
  reference::RowStats absorbed = stats;
  absorbed.max_up_dot = 0.4;
  absorbed.rms_up_round = 0.03;
  absorbed.max_up_round = 0.04;

  const RoundingProfile plain;
  const RowBudget base = row_budget(stats, plain, latent, 0.1, want, 7.0);
  const auto with = [&](auto change, const reference::RowStats& s, const AttentionShape& shape) {
    RoundingProfile profile;
    change(profile);
    return row_budget(s, profile, shape, 0.1, want, 7.0);
  };
  const RowBudget p = with([](RoundingProfile& r) { r.probabilities = DType::kBF16; }, stats, latent);
  EXPECT_GT(p.max, 20 * base.max);
  EXPECT_EQ(p.dominant, ErrorSource::kProbabilities);
  EXPECT_EQ(p.lse, base.lse) << "the sum is taken before P is rounded";
  const RowBudget sum = with(
      [](RoundingProfile& r) {
        r.probabilities = DType::kBF16;
        r.lse_from_rounded_p = true;
      },
      stats, latent);
  EXPECT_NEAR(sum.lse - base.lse, 0x1p-8, 1e-12);
  const RowBudget partials = with([](RoundingProfile& r) { r.partials = DType::kBF16; }, stats, latent);
  EXPECT_EQ(partials.dominant, ErrorSource::kPartials);
  EXPECT_GT(partials.rms, base.rms);

  const RowBudget expanded = with([](RoundingProfile& r) { r.expanded_kv = DType::kBF16; }, stats, head);
  EXPECT_GT(expanded.lse, 10 * base.lse) << "rounded keys move the scores";
  const RowBudget query = with([](RoundingProfile& r) { r.absorbed_query = DType::kBF16; }, absorbed, head);
  EXPECT_EQ(query.dominant, ErrorSource::kScores);
  const RowBudget lat = with([](RoundingProfile& r) { r.latent_output = DType::kBF16; }, absorbed, head);
  EXPECT_EQ(lat.dominant, ErrorSource::kProjection);
  const RowBudget unused = with([](RoundingProfile& r) { r.expanded_kv = DType::kBF16; }, absorbed, head);
  EXPECT_LT(unused.max, 0.01 * expanded.max) << "the absorbed form has no expanded keys to round";
}

TEST(RowBudget, OneKeyIsExactOnlyIfItsWeightIs) {
  reference::RowStats stats;
  stats.num_keys = 1;
  stats.max_abs_score = 1e4;
  stats.rms_weighted_v = stats.max_weighted_v = stats.rms_p_round = stats.max_p_round = 2.0;
  const std::vector<double> want(16, 2.0);
  RoundingProfile profile;
  profile.probabilities = DType::kF16;
  EXPECT_EQ(row_budget(stats, profile, latent_shape(DType::kF32), 0.1, want, 1e4).max, 0);
  profile.unit_weight = false;
  const RowBudget fused = row_budget(stats, profile, latent_shape(DType::kF32), 0.1, want, 1e4);
  EXPECT_NEAR(fused.max, 2 * 0x1p-11, 1e-4);
  EXPECT_EQ(fused.dominant, ErrorSource::kProbabilities);
}

TEST(RowBudget, RoundingOfPIsNeverMoreThanAllOneWay) {
  reference::RowStats stats = many_keys();
  stats.rms_p_round = stats.rms_weighted_v;  // one key has nearly all the weight
  stats.max_p_round = stats.max_weighted_v;
  RoundingProfile profile;
  profile.probabilities = DType::kBF16;
  const std::vector<double> want(16, 0.8);
  const RowBudget budget = row_budget(stats, profile, latent_shape(DType::kF32), 0.0, want, 7.0);
  EXPECT_LT(budget.max, 1.05 * 0x1p-8 * stats.max_weighted_v);
}

TEST(RowBudget, EqualValuesAreRoundedEqually) {
  // 300 keys of one value: expanded to bf16 they all err by the same amount, which their number does not
  // average out.
  reference::RowStats stats = many_keys();
  stats.max_spread = stats.rms_spread = 0;
  stats.max_rms_dot = 0;  // exact scores: only the rounding of values is looked at
  stats.max_p_round = stats.max_weighted_v / std::sqrt(300.0);
  stats.rms_p_round = stats.rms_weighted_v / std::sqrt(300.0);
  RoundingProfile profile;
  profile.expanded_kv = DType::kBF16;
  AttentionShape head = latent_shape(DType::kF32);
  head.space = QuerySpace::kHead;
  const std::vector<double> want(16, 0.8);
  const RowBudget equal = row_budget(stats, profile, head, 0.1, want, 7.0);
  EXPECT_GT(equal.max, 0x1p-8 * stats.max_weighted_v);
  EXPECT_LT(equal.max, 1.1 * 0x1p-8 * stats.max_weighted_v);
  stats.max_spread = stats.max_weighted_v;  // values that have nothing in common
  stats.rms_spread = stats.rms_weighted_v;
  EXPECT_LT(row_budget(stats, profile, head, 0.1, want, 7.0).max, 0.6 * equal.max);
}

TEST(RowBudget, DoubleArithmeticIsHeldToDouble) {
  RoundingProfile profile;
  profile.accumulate = profile.probabilities = profile.partials = DType::kF64;
  const std::vector<double> want(16, 0.03);
  const RowBudget budget = row_budget(many_keys(), profile, latent_shape(DType::kF64), 0.1, want, 7.0);
  EXPECT_LT(budget.max, 1e-13);
  EXPECT_LT(budget.lse, 1e-12);
  EXPECT_GT(budget.max, 1e-16);
}

TEST(RowBudget, RowsWithoutStatisticsAreRefused) {
  reference::AttentionOutput want;
  want.out = {1, 2};
  want.lse = {0};
  EXPECT_THROW((void)row_budgets(want, {}, {}, latent_shape(DType::kF32), 1.0), Error);
}

// ---- compare_rows
// ---------------------------------------------------------------------------------------------

TEST(CompareRows, BudgetZeroWantsTheReferenceRounded) {
  const std::vector<double> want{1.0, 1.0 + 0x1p-10};
  const std::vector<RowBudget> budgets(1);
  std::vector<double> got{1.0, round_to(DType::kBF16, want[1])};
  EXPECT_TRUE(compare_rows(got, want, {}, {}, 2, budgets, DType::kBF16).passed());
  got[0] += 0x1p-7;
  const ErrorReport report = compare_rows(got, want, {}, {}, 2, budgets, DType::kBF16);
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.worst_row, 0);
  EXPECT_EQ(report.worst_column, 0);
  EXPECT_EQ(report.worst_ulp, 1.0);
}

TEST(CompareRows, NanAndInfinityAreMetInKind) {
  const std::vector<double> want{kNan, kInf, -kInf, 1.0};
  const std::vector<RowBudget> budgets(1);
  EXPECT_TRUE(compare_rows(want, want, {}, {}, 4, budgets, DType::kF32).passed());
  struct Wrong {
    std::vector<double> got;
    std::int64_t column;
  };
  const std::vector<Wrong> wrong{{{1.0, kInf, -kInf, 1.0}, 0},
                                 {{kNan, kNan, -kInf, 1.0}, 1},
                                 {{kNan, -kInf, -kInf, 1.0}, 1},
                                 {{kNan, kInf, -kInf, kNan}, 3}};
  for (const Wrong& w : wrong) {
    const ErrorReport report = compare_rows(w.got, want, {}, {}, 4, budgets, DType::kF32);
    EXPECT_EQ(report.nan_mismatches, 1);
    EXPECT_EQ(report.failed_rows, 1);
    EXPECT_EQ(report.stage, "nan");
    EXPECT_EQ(report.worst_column, w.column);
  }
}

TEST(CompareRows, AValueThatOverflowsTheOutputTypeBecomesInfinity) {
  const std::vector<double> want{1e6};
  const std::vector<RowBudget> budgets(1);
  EXPECT_TRUE(compare_rows(std::vector<double>{kInf}, want, {}, {}, 1, budgets, DType::kF16).passed());
  EXPECT_FALSE(compare_rows(std::vector<double>{65504}, want, {}, {}, 1, budgets, DType::kF16).passed());
}

TEST(CompareRows, TheEmptyRowsLseIsMinusInfinityAndNothingElse) {
  const std::vector<double> zero{0.0};
  const std::vector<double> want{-kInf};
  const std::vector<RowBudget> budgets(1);
  EXPECT_TRUE(compare_rows(zero, zero, want, want, 1, budgets, DType::kF32).passed());
  for (const double lse : {kInf, kNan, -1e30, 0.0}) {
    const ErrorReport report =
        compare_rows(zero, zero, std::vector<double>{lse}, want, 1, budgets, DType::kF32);
    EXPECT_FALSE(report.passed()) << lse;
    EXPECT_EQ(report.worst_column, -1) << lse;
  }
}

TEST(CompareRows, OneWrongRowAmongThousandsFailsAndIsNamed) {
  const std::int64_t rows = 4000;
  const std::int64_t width = 8;
  std::vector<double> want(rows * width, 1.0);
  std::vector<double> got = want;
  std::vector<RowBudget> budgets(rows);
  for (RowBudget& b : budgets) b.max = b.rms = 1e-3;
  got[1234 * width + 5] += 0.1;
  const ErrorReport report =
      compare_rows(got, want, {}, {}, width, budgets, DType::kBF16, {4, {}, false, false, {}});
  EXPECT_EQ(report.failed_rows, 1);
  EXPECT_EQ(report.worst_row, 1234);
  EXPECT_EQ(report.worst_column, 5);
  EXPECT_NE(to_text(report, 4).find("row 1234 (token 308, head 2) column 5: got 1.1, want 1"),
            std::string::npos)
      << to_text(report, 4);
}

TEST(CompareRows, SizesThatDoNotFitAreRefused) {
  const std::vector<double> two(2);
  const std::vector<RowBudget> budgets(2);
  EXPECT_THROW((void)compare_rows(two, two, {}, {}, 2, budgets, DType::kF32), Error);
  EXPECT_THROW((void)compare_rows(two, two, two, {}, 1, budgets, DType::kF32), Error);
  EXPECT_THROW((void)compare_rows(two, two, {}, {}, 0, budgets, DType::kF32), Error);
  EXPECT_THROW((void)compare_rows(two, two, {}, {}, 1, budgets, DType::kF32, {3, {}, false, false, {}}),
               Error);
}

/// Rows whose error is random: P rounding of relative size `sigma` before a rounding to bf16.
struct Simulated {
  std::vector<double> got, want;
  std::vector<RowBudget> budgets;
};

Simulated simulate(std::uint64_t seed, std::int64_t rows, std::int64_t width, double sigma, double scale,
                   bool truncate) {
  const CounterRng values(seed, 0);
  const CounterRng errors(seed, 1);
  Simulated s;
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const double want = values.normal(index);
    const double exact = want * scale + sigma * errors.normal(index);
    double got = round_to(DType::kBF16, exact);
    if (truncate && std::abs(got) > std::abs(exact)) got -= std::copysign(ulp_of(DType::kBF16, exact), got);
    s.want.push_back(want);
    s.got.push_back(got);
  }
  RowBudget budget;
  budget.sigma = sigma * 1.36;  // as row_budget: the worst mantissa
  budget.max = budget.rms = 5 * budget.sigma;
  s.budgets.assign(static_cast<std::size_t>(rows), budget);
  return s;
}

constexpr double kUsualSigma = 0.0017;

TEST(CompareRows, AnIdealKernelIsNeverAccused) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Simulated s = simulate(seed, 64, 128, kUsualSigma, 1.0, false);
    const ErrorReport report =
        compare_rows(s.got, s.want, {}, {}, 128, s.budgets, DType::kBF16, {8, {}, true, false, {}});
    ASSERT_TRUE(report.passed()) << "seed " << seed << ": " << to_text(report, 8);
    ASSERT_GT(report.pooled_share, 0.3) << "a budget that loose would find nothing";
  }
}

/// All channels of a row move together by a normal number of `factor` standard deviations: as uneven as rows
/// can be.
ErrorReport compare_common_error(std::uint64_t seed, double factor, bool independent) {
  constexpr std::int64_t kRows = 1024;
  constexpr std::int64_t kWidth = 16;
  const CounterRng rng(seed);
  std::vector<double> want(kRows * kWidth, 1.0);
  std::vector<double> got = want;
  for (std::size_t i = 0; i < got.size(); ++i) got[i] += factor * 1e-3 * rng.normal(i / kWidth);
  RowBudget budget;
  budget.sigma = 1.36e-3;
  budget.max = budget.rms = 5 * budget.sigma;
  const std::vector<RowBudget> budgets(kRows, budget);
  return compare_rows(got, want, {}, {}, kWidth, budgets, DType::kF32, {1, {}, independent, false, {}});
}

TEST(CompareRows, PoolsFindWhatNoSingleRowShows) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    EXPECT_TRUE(compare_common_error(seed, 1.0, true).passed()) << seed;
    EXPECT_TRUE(compare_common_error(seed, 1.7, false).passed()) << seed;
    const ErrorReport pooled = compare_common_error(seed, 1.7, true);
    EXPECT_FALSE(pooled.passed()) << seed;
    EXPECT_EQ(pooled.stage, "pooled") << seed;
  }
}

TEST(CompareRows, PoolsNameTheHeadAndTheRequest) {
  Simulated s = simulate(1, 512, 64, kUsualSigma, 1.0, false);
  for (std::int64_t r = 3; r < 512; r += 8) {
    for (std::int64_t c = 0; c < 64; ++c) {
      s.got[static_cast<std::size_t>(r * 64 + c)] =
          round_to(DType::kBF16, s.want[static_cast<std::size_t>(r * 64 + c)] * 1.008);
    }
  }
  const ErrorReport head =
      compare_rows(s.got, s.want, {}, {}, 64, s.budgets, DType::kBF16, {8, {}, true, false, {}});
  EXPECT_EQ(head.pool, "head 3");
  EXPECT_FALSE(head.passed());

  s = simulate(1, 512, 64, kUsualSigma, 1.0, false);
  for (std::size_t i = 128 * 64; i < 256 * 64; ++i) s.got[i] = round_to(DType::kBF16, s.want[i] * 1.008);
  const std::vector<std::int32_t> cu{0, 16, 32, 64};  // tokens
  const ErrorReport request =
      compare_rows(s.got, s.want, {}, {}, 64, s.budgets, DType::kBF16, {8, cu, true, false, {}});
  EXPECT_EQ(request.pool, "request 1");
  EXPECT_FALSE(request.passed());
}

TEST(CompareRows, TruncationInPlaceOfRoundingIsABias) {
  const Simulated s = simulate(1, 64, 128, 0.0002, 1.0, true);
  const ErrorReport report =
      compare_rows(s.got, s.want, {}, {}, 128, s.budgets, DType::kBF16, {8, {}, true, false, {}});
  EXPECT_TRUE(report.biased);
  EXPECT_LT(report.magnitude_bias, -0.3);
  EXPECT_LT(std::abs(report.signed_bias), 0.05) << "values of both signs hide it from a plain mean";
  const ErrorReport quiet =
      compare_rows(s.got, s.want, {}, {}, 128, s.budgets, DType::kBF16, {8, {}, false, false, {}});
  EXPECT_FALSE(quiet.biased);
}

/// Rows whose numbers are few: `values` of them, each `place` of the way from one bf16 number to the next.
Simulated simulate_few(std::uint64_t seed, std::int64_t values, double place, bool truncate) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kWidth = 128;
  const CounterRng rng(seed, 0);
  Simulated s;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    const auto which = rng.between(static_cast<std::uint64_t>(i), 1, values);
    const double want = 1 + (static_cast<double>(which) + place) * 0x1p-7;
    s.want.push_back(want);
    s.got.push_back(round_to(DType::kBF16, truncate ? want - 0x1p-8 : want));
  }
  RowBudget budget;
  budget.sigma = kUsualSigma;
  budget.max = budget.rms = 5 * budget.sigma;
  s.budgets.assign(kRows, budget);
  return s;
}

TEST(CompareRows, HowTheExactResultRoundsIsNoBias) {
  // Every element is rounded up by 0.3 ulp, as its exact value demands: an average over thousands of
  // elements, but of a few numbers only. An fp8 cache and one visible key give such outputs.
  for (const std::int64_t values : {1, 20, 100}) {
    const Simulated s = simulate_few(1, values, 0.7, false);
    const ErrorReport report =
        compare_rows(s.got, s.want, {}, {}, 128, s.budgets, DType::kBF16, {8, {}, true, false, {}});
    EXPECT_TRUE(report.passed()) << values << ": " << to_text(report, 8);
    EXPECT_EQ(report.signed_bias, 0);
    EXPECT_EQ(report.magnitude_bias, 0);
  }
}

TEST(CompareRows, EqualNumbersAreOneSample) {
  // All elements are one unit too small. Among 100 numbers that is a bias; among 20 it is an error of so few
  // numbers that each may stand at its own rounding boundary.
  const Simulated many = simulate_few(1, 100, 0.7, true);
  const ErrorReport found =
      compare_rows(many.got, many.want, {}, {}, 128, many.budgets, DType::kBF16, {8, {}, true, false, {}});
  EXPECT_TRUE(found.biased) << to_text(found, 8);
  EXPECT_EQ(found.signed_bias, -1);
  const Simulated few = simulate_few(1, 20, 0.7, true);
  const ErrorReport unjudged =
      compare_rows(few.got, few.want, {}, {}, 128, few.budgets, DType::kBF16, {8, {}, true, false, {}});
  EXPECT_FALSE(unjudged.biased) << to_text(unjudged, 8);
  EXPECT_EQ(unjudged.signed_bias, -1);
}

TEST(ReportText, NamesStageSourceAndPlace) {
  ErrorReport report;
  EXPECT_EQ(to_text(report, 1), "nothing to compare");
  report.rows = 8;
  report.budget_share = 0.234;
  report.stage = "max";
  report.dominant = ErrorSource::kProbabilities;
  report.worst_row = 5;
  report.worst_column = 7;
  report.worst_got = 0.1235;
  report.worst_want = 0.1234;
  report.worst_ulp = 0.4;
  EXPECT_EQ(
      to_text(report, 4),
      "23 % of budget (max, mostly P rounding); worst at row 5 (token 1, head 1) column 7: got 0.1235, want "
      "0.1234 (0.4 ulp)");
}

}  // namespace
}  // namespace mla
