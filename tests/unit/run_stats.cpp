// SPDX-License-Identifier: Apache-2.0
// Statistics against values worked out by hand, the sampler against a scripted clock, least work against
// counting.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "expect_error.hpp"
#include "run/sampler.hpp"
#include "run/stats.hpp"
#include "run/work.hpp"

namespace {

using namespace mla::run;
using mla::ErrorCode;

std::vector<double> count_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{1, 2, 3, 4}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{1, 2, 3, 4}, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(quantile(count_to(101), 1.0), 101);
  expect_error([] { return quantile({}, 0.5); }, ErrorCode::kInvalidArgument, {"0 samples"});
  expect_error([] { return quantile(std::vector<double>{1}, 1.5); }, ErrorCode::kInvalidArgument, {"1.5"});
  expect_error([] { return quantile(std::vector<double>{1}, std::nan("")); }, ErrorCode::kInvalidArgument,
               {"nan"});
}

TEST(MedianInterval, OrderStatisticsOfTheBinomial) {
  const auto ranks = [](int n) {
    const Interval i = median_interval(count_to(n));
    return std::pair(i.low, i.high);
  };
  // 2 * 2^-5 = 6.25 % > 5 %: five samples have no 95 % interval, so the range.
  EXPECT_EQ(ranks(5), std::pair(1.0, 5.0));
  // 2 * 2^-6 = 3.1 %: the extremes of six do.
  EXPECT_EQ(ranks(6), std::pair(1.0, 6.0));
  // n = 8: P(B <= 0) = 0.39 %, P(B <= 1) = 3.5 % > 2.5 %.
  EXPECT_EQ(ranks(8), std::pair(1.0, 8.0));
  // n = 9: P(B <= 1) = 1.95 %.
  EXPECT_EQ(ranks(9), std::pair(2.0, 8.0));
  // Textbook tables: n = 20 -> 6, 15; n = 25 -> 8, 18; n = 50 -> 18, 33.
  EXPECT_EQ(ranks(20), std::pair(6.0, 15.0));
  EXPECT_EQ(ranks(25), std::pair(8.0, 18.0));
  EXPECT_EQ(ranks(50), std::pair(18.0, 33.0));
  // 2^-2000 underflows; the normal approximation says 1000 -+ 0.98 sqrt(2000) = 956, 1045.
  const auto [low, high] = ranks(2000);
  EXPECT_NEAR(low, 956, 1);
  EXPECT_NEAR(high, 1045, 1);
}

TEST(Summary, OfAKnownSet) {
  const Summary s = summarize(std::vector<double>{9, 1, 5, 3, 7, 2, 8, 4, 6});
  EXPECT_EQ(s.n, 9U);
  EXPECT_DOUBLE_EQ(s.median, 5);
  EXPECT_DOUBLE_EQ(s.min, 1);
  EXPECT_DOUBLE_EQ(s.max, 9);
  EXPECT_DOUBLE_EQ(s.p25, 3);
  EXPECT_DOUBLE_EQ(s.p75, 7);
  EXPECT_DOUBLE_EQ(s.noise, (8.0 - 2.0) / 2 / 5);
  EXPECT_TRUE(std::isinf(summarize(std::vector<double>{1}).noise)) << "one sample says nothing about noise";
  expect_error([] { return summarize({}); }, ErrorCode::kInvalidArgument, {"no samples"});
  expect_error([] { return summarize(std::vector<double>{1, NAN}); }, ErrorCode::kInvalidArgument, {"nan"});
}

TEST(IntervalTest, Overlap) {
  EXPECT_TRUE((Interval{1, 2}.overlaps({2, 3})));
  EXPECT_FALSE((Interval{1, 2}.overlaps({2.5, 3})));
  EXPECT_FALSE((Interval{4, 5}.overlaps({2.5, 3})));
}

/// Says what it is told, in turn, and counts.
class ScriptedTimer final : public Timer {
 public:
  explicit ScriptedTimer(std::vector<double> script) : script_(std::move(script)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "scripted"; }
  [[nodiscard]] double resolution() const noexcept override { return 0x1p-30; }
  [[nodiscard]] double measure(const std::function<void()>& call, int calls) override {
    for (int i = 0; i < calls; ++i) call();
    return script_[measured++ % script_.size()];
  }
  std::size_t measured = 0;

 private:
  std::vector<double> script_;
};

constexpr StopRule kRule{.noise = 0.01, .min_samples = 7, .max_samples = 40, .min_time = 0, .max_time = 60};

TEST(Sampler, StopsAtTheMinimumWhenNothingVaries) {
  ScriptedTimer timer({1.0});
  const Samples s = sample(
      timer, kRule, [] {}, nullptr, nullptr);
  EXPECT_EQ(s.seconds.size(), 7U);
  EXPECT_EQ(timer.measured, 8U) << "the first call is a warm-up and no sample";
  EXPECT_TRUE(s.converged);
  EXPECT_EQ(s.calls_per_sample, 1);
}

TEST(Sampler, GoesOnWhileTheIntervalIsWideAndSaysThatItGaveUp) {
  ScriptedTimer timer({1.0, 1.5});
  const Samples s = sample(
      timer, kRule, [] {}, nullptr, nullptr);
  EXPECT_EQ(s.seconds.size(), 40U);
  EXPECT_FALSE(s.converged);
}

TEST(Sampler, MeetsTheMinimumTimeOfWork) {
  ScriptedTimer timer({0.25});
  StopRule rule = kRule;
  rule.min_time = 5.0;
  EXPECT_EQ(sample(
                timer, rule, [] {}, nullptr, nullptr)
                .seconds.size(),
            20U);
}

TEST(Sampler, TakesOneSampleEvenWithNoTimeLeft) {
  ScriptedTimer timer({1.0});
  StopRule rule = kRule;
  rule.max_time = 0;
  const Samples s = sample(
      timer, rule, [] {}, nullptr, nullptr);
  EXPECT_EQ(s.seconds.size(), 1U);
  EXPECT_FALSE(s.converged);
}

TEST(Sampler, ShortCallsAreGroupedUntilTheTimerResolvesThem) {
  ScriptedTimer timer({20 * 0x1p-30});  // 1000 resolutions: 50 calls
  int calls = 0;
  const Samples s = sample(
      timer, kRule, [&] { ++calls; }, nullptr, nullptr);
  EXPECT_EQ(s.calls_per_sample, 50);
  EXPECT_EQ(calls, 1 + 7 * 50);
}

TEST(Sampler, PreparesBeforeEverySampleAndThenTimesSingleCalls) {
  ScriptedTimer timer({20 * 0x1p-30});
  int prepared = 0;
  const Samples s = sample(
      timer, kRule, [] {}, [&] { ++prepared; }, nullptr);
  EXPECT_EQ(s.calls_per_sample, 1);
  EXPECT_EQ(prepared, 8);
}

TEST(Sampler, StopsWhenAsked) {
  ScriptedTimer timer({1.0});
  const Samples s = sample(
      timer, kRule, [] {}, nullptr, [&] { return timer.measured == 4; });
  EXPECT_TRUE(s.interrupted);
  EXPECT_EQ(s.seconds.size(), 3U);
}

TEST(WallTimerTest, MeasuresARealWait) {
  WallTimer timer;
  EXPECT_GT(timer.resolution(), 0);
  EXPECT_LT(timer.resolution(), 1e-3);
  const auto spin = [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  EXPECT_GE(timer.measure(spin, 3), 0.002);
}

/// Counts by asking the mask about every key.
Work count_slowly(const mla::AttentionShape& shape) {
  Work work;
  for (const mla::Request& r : shape.batch) {
    for (std::int64_t j = 0; j < r.kv_len; ++j) {
      bool any = false;
      for (std::int64_t i = 0; i < r.q_len; ++i) {
        const bool sees = shape.mask.sees(r.kv_len - r.q_len + i, r.kv_len, j);
        work.pairs += sees ? 1 : 0;
        any = any || sees;
      }
      work.rows += any ? 1 : 0;
    }
  }
  return work;
}

TEST(WorkCount, AgreesWithTheMaskKeyByKey) {
  for (const bool causal : {true, false}) {
    for (const int window : {0, 1, 3, 8, 100}) {
      for (const int sink : {0, 1, 4, 50}) {
        if (!causal && window > 0) continue;
        if (window == 0 && sink > 0) continue;
        mla::AttentionShape shape;
        shape.batch = {{1, 1}, {1, 17}, {4, 17}, {17, 17}, {1, 0}, {3, 3}, {0, 9}};
        shape.mask.causal = causal;
        if (window > 0) shape.mask.window = window;
        shape.mask.sink = sink;
        const Work fast = count_work(shape);
        const Work slow = count_slowly(shape);
        EXPECT_EQ(fast.pairs, slow.pairs) << mla::to_text(shape);
        EXPECT_EQ(fast.rows, slow.rows) << mla::to_text(shape);
      }
    }
  }
}

TEST(WorkCount, OfOneDecodedTokenByHand) {
  mla::AttentionShape shape;  // DeepSeek-V3 on one rank of eight
  shape.dims.num_heads = 16;
  shape.batch = {{1, 1000}};
  const Work latent = count_work(shape);
  EXPECT_EQ(latent.pairs, 1000);
  // rows 1000 * 1152 B; q 16 * 576 * 2; out 16 * 512 * 2; lse 16 * 4.
  EXPECT_DOUBLE_EQ(latent.bytes, 1152000 + 18432 + 16384 + 64);
  EXPECT_DOUBLE_EQ(latent.absorbed_flops, 2.0 * 16 * 1000 * 1088);
  EXPECT_EQ(latent.expanded_flops, 0);
  EXPECT_DOUBLE_EQ(latent.flops_of("expanded"), latent.absorbed_flops);

  shape.space = mla::QuerySpace::kHead;
  const Work head = count_work(shape);
  const double weights = 16.0 * 512 * 256;  // W_UK and W_UV
  EXPECT_DOUBLE_EQ(head.bytes, 1152000 + 16 * 192 * 2 + 16 * 128 * 2 + 64 + weights * 2);
  EXPECT_DOUBLE_EQ(head.absorbed_flops, 2.0 * 16 * 1000 * 1088 + 2 * weights);
  EXPECT_DOUBLE_EQ(head.expanded_flops, 2.0 * 16 * 1000 * 320 + 2 * weights * 1000);
  EXPECT_DOUBLE_EQ(head.least_flops(), head.absorbed_flops);
  EXPECT_DOUBLE_EQ(head.flops_of("expanded"), head.expanded_flops);
}

TEST(WorkCount, ASharedPrefixIsReadOnceAndComputedForEach) {
  mla::AttentionShape shape;
  shape.dims.num_heads = 16;
  shape.batch = {{1, 1000}, {1, 1100}, {2, 70}, {1, 1024}};
  const Work apart = count_work(shape);
  shape.shared = {{960, 0, 2}, {960, 3, 1}};
  const Work shared = count_work(shape);
  EXPECT_EQ(apart.rows, 1000 + 1100 + 70 + 1024);
  EXPECT_EQ(shared.rows, apart.rows - 960) << "once for the second member; a group of one saves nothing";
  EXPECT_EQ(shared.pairs, apart.pairs);
  EXPECT_DOUBLE_EQ(shared.absorbed_flops, apart.absorbed_flops);
  EXPECT_DOUBLE_EQ(shared.bytes, apart.bytes - 960 * 1152);
}

TEST(WorkCount, AnIndexReplacesTheMask) {
  mla::AttentionShape shape;
  shape.batch = {{2, 100}, {1, 10}};
  shape.topk = 30;
  const Work work = count_work(shape);
  EXPECT_EQ(work.pairs, 2 * 30 + 10);
  EXPECT_EQ(work.rows, 60 + 10);
}

}  // namespace
