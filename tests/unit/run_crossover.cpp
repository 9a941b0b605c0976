// SPDX-License-Identifier: Apache-2.0
// The bisection against rivals whose crossing is known.
#include <gtest/gtest.h>

#include <cmath>

#include "expect_error.hpp"
#include "run/crossover.hpp"

namespace {

using namespace mla::run;

/// Times a + b x against c + d x, each known to +-noise.
std::function<bool(CrossoverPoint&)> rivals(double a, double b, double c, double d, double noise,
                                            int* calls = nullptr) {
  return [=](CrossoverPoint& p) {
    const auto x = static_cast<double>(p.x);
    p.first = a + b * x;
    p.second = c + d * x;
    p.first_interval = {p.first * (1 - noise), p.first * (1 + noise)};
    p.second_interval = {p.second * (1 - noise), p.second * (1 + noise)};
    if (calls != nullptr) ++*calls;
    return true;
  };
}

TEST(Crossover, FindsWhereLinesCross) {
  int calls = 0;
  // 10 + 5x and 1000 + x cross at 247.5.
  const Crossover c = find_crossover(1, 65536, 1.02, rivals(10, 5, 1000, 1, 0.001, &calls));
  ASSERT_TRUE(c.found);
  EXPECT_EQ(c.below, -1);
  EXPECT_EQ(c.above, 1);
  EXPECT_LE(c.low, 247);
  EXPECT_GE(c.high, 248);
  EXPECT_LE(static_cast<double>(c.high) / static_cast<double>(c.low), 1.05);
  EXPECT_NEAR(c.estimate, 247.5, 1.5);
  EXPECT_LE(calls, 20) << "a bisection, not a grid";
  EXPECT_EQ(static_cast<int>(c.points.size()), calls);
}

TEST(Crossover, TheZoneWhereNobodyIsSureIsOutsideTheBorders) {
  const Crossover c = find_crossover(1, 65536, 1.02, rivals(10, 5, 1000, 1, 0.05));
  ASSERT_TRUE(c.found);
  EXPECT_LT(c.low, 247);
  EXPECT_GT(c.high, 248);
  // |log(first/second)| = log(1.05/0.95) at the true borders of the zone.
  EXPECT_NEAR(static_cast<double>(c.low), 219.5, 8);
  EXPECT_NEAR(static_cast<double>(c.high), 278.5, 10);
  EXPECT_NEAR(c.estimate, 247.5, 5);
}

TEST(Crossover, SaysWhenThereIsNone) {
  const Crossover first = find_crossover(1, 1000, 1.05, rivals(1, 1, 10, 10, 0.01));
  EXPECT_FALSE(first.found);
  EXPECT_EQ(first.below, -1);
  EXPECT_EQ(first.above, -1);
  EXPECT_EQ(first.points.size(), 2U);
  const Crossover same = find_crossover(1, 1000, 1.05, rivals(1, 1, 1, 1, 0.01));
  EXPECT_FALSE(same.found);
  EXPECT_EQ(same.below, 0);
}

TEST(Crossover, WorksInBothDirectionsAndOnNeighbours) {
  const Crossover c = find_crossover(1, 4096, 1.001, rivals(1000, 1, 10, 5, 0.0001));
  ASSERT_TRUE(c.found);
  EXPECT_EQ(c.below, 1);
  EXPECT_EQ(c.low, 247);
  EXPECT_EQ(c.high, 248);
  const Crossover tight = find_crossover(247, 248, 1.0001, rivals(10, 5, 1000, 1, 0));
  EXPECT_TRUE(tight.found);
  EXPECT_EQ(tight.points.size(), 2U);
}

TEST(Crossover, NoiseThatContradictsItselfStillEnds) {
  // A winner that alternates with x: no crossing to find, but an end.
  const Crossover c = find_crossover(1, 1 << 20, 1.01, [](CrossoverPoint& p) {
    const bool first = p.x == 1 || (p.x % 3 == 0 && p.x < (1 << 20));
    p.first = first ? 1 : 2;
    p.second = first ? 2 : 1;
    if (p.x % 5 == 0) p.first = p.second = 1;
    p.first_interval = {p.first, p.first};
    p.second_interval = {p.second, p.second};
    return true;
  });
  EXPECT_LT(c.points.size(), 200U);
}

TEST(Crossover, GivesUpWhenAskedAndRefusesNonsense) {
  int left = 4;
  const Crossover c = find_crossover(1, 65536, 1.02, [&](CrossoverPoint& p) {
    if (left-- == 0) return false;
    return rivals(10, 5, 1000, 1, 0.001)(p);
  });
  EXPECT_TRUE(c.interrupted);
  EXPECT_EQ(c.points.size(), 4U);
  const auto look = [](std::int64_t low, std::int64_t high) {
    return [=] { return find_crossover(low, high, 1.05, rivals(1, 1, 1, 1, 0)).found; };
  };
  expect_error(look(5, 5), mla::ErrorCode::kInvalidArgument, {"5..5"});
  expect_error(look(0, 5), mla::ErrorCode::kInvalidArgument, {"0..5"});
}

}  // namespace
