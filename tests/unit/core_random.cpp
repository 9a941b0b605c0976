// SPDX-License-Identifier: Apache-2.0
#include "mla/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace {

using mla::CounterRng;

// The vectors published with the generator (Random123, kat_vectors, philox4x32 10 rounds).
TEST(Philox, KnownAnswers) {
  using Counter = std::array<std::uint32_t, 4>;
  static_assert(mla::philox_4x32_10({0, 0, 0, 0}, {0, 0}) ==
                Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  EXPECT_EQ(mla::philox_4x32_10({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(mla::philox_4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, BitsAreTheFirstWordsOfTheDocumentedBlock) {
  EXPECT_EQ(CounterRng(0).bits(0), 0xe169c58d6627e8d5U);
  const CounterRng rng(0x299f31d0a4093822U, 0x0370734413198a2eU);
  EXPECT_EQ(rng.bits(0x85a308d3243f6a88U), 0x94fdccebd16cfe09U);
}

TEST(CounterRng, SeedStreamAndIndexAllMatter) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32}) {
    for (std::uint64_t stream : {0ULL, 1ULL, 1ULL << 32}) {
      for (std::uint64_t index : {0ULL, 1ULL, 1ULL << 32}) seen.insert(CounterRng(seed, stream).bits(index));
    }
  }
  EXPECT_EQ(seen.size(), 27U);
}

TEST(CounterRng, UniformIsEven) {
  constexpr int kDraws = 200000;
  constexpr int kBins = 100;
  std::array<int, kBins> bins{};
  const CounterRng rng(7, 3);
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<std::size_t>(u * kBins)];
  }
  double chi2 = 0;
  for (const int n : bins) chi2 += std::pow(n - kDraws / kBins, 2) / (kDraws / kBins);
  EXPECT_GT(chi2, 58.0);   // 99 degrees of freedom: mean 99, deviation 14; too even is suspicious too
  EXPECT_LT(chi2, 149.0);  // 0.1 % point
}

TEST(CounterRng, NormalHasTheNormalDistribution) {
  constexpr int kDraws = 200000;
  const CounterRng rng(11, 5);
  std::vector<double> x(kDraws);
  for (int i = 0; i < kDraws; ++i) x[static_cast<std::size_t>(i)] = rng.normal(static_cast<std::uint64_t>(i));
  double mean = 0, m2 = 0, m3 = 0, m4 = 0, neighbours = 0;
  for (const double v : x) mean += v / kDraws;
  for (const double v : x) {
    m2 += std::pow(v - mean, 2) / kDraws;
    m3 += std::pow(v - mean, 3) / kDraws;
    m4 += std::pow(v - mean, 4) / kDraws;
  }
  for (std::size_t i = 1; i < x.size(); ++i) neighbours += x[i] * x[i - 1] / kDraws;
  const double sigma = 1 / std::sqrt(double{kDraws});  // of a mean of unit variance
  EXPECT_NEAR(mean, 0.0, 4 * sigma);
  EXPECT_NEAR(m2, 1.0, 4 * std::sqrt(2.0) * sigma);
  EXPECT_NEAR(m3, 0.0, 4 * std::sqrt(15.0) * sigma);
  EXPECT_NEAR(m4, 3.0, 4 * std::sqrt(96.0) * sigma);
  EXPECT_NEAR(neighbours, 0.0, 4 * sigma);
  // Kolmogorov-Smirnov against the normal distribution function; 1.95 / sqrt(n) is the 0.1 % point.
  std::sort(x.begin(), x.end());
  double distance = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = std::erfc(-x[i] / std::sqrt(2.0)) / 2;
    distance = std::max({distance, std::abs(want - static_cast<double>(i) / kDraws),
                         std::abs(want - static_cast<double>(i + 1) / kDraws)});
  }
  EXPECT_LT(distance, 1.95 * sigma);
  EXPECT_GT(x.back(), 3.5);  // the tail exists
  for (const double v : x) ASSERT_TRUE(std::isfinite(v));
}

TEST(CounterRng, BetweenKeepsItsBoundsAndReachesThem) {
  const CounterRng rng(3);
  std::array<int, 6> faces{};
  for (std::uint64_t i = 0; i < 60000; ++i) {
    const std::int64_t face = rng.between(i, -2, 3);
    ASSERT_GE(face, -2);
    ASSERT_LE(face, 3);
    ++faces[static_cast<std::size_t>(face + 2)];
  }
  for (const int n : faces) EXPECT_NEAR(n, 10000, 4 * std::sqrt(10000 * 5.0 / 6));
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(rng.between(0, 5, 5), 5);
  EXPECT_EQ(rng.between(0, kMax, kMax), kMax);
  EXPECT_EQ(rng.between(0, kMin, kMin), kMin);
  EXPECT_EQ(rng.between(9, kMin, kMax), static_cast<std::int64_t>(rng.bits(9)));
  bool negative = false, positive = false;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const std::int64_t v = rng.between(i, kMin, kMax - 1);
    ASSERT_LT(v, kMax);
    (v < 0 ? negative : positive) = true;
  }
  EXPECT_TRUE(negative && positive);
}

}  // namespace
