// SPDX-License-Identifier: Apache-2.0
// What can be known about measuring on a GPU without one: how many sets of inputs keep caches cold, the
// random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "expect_error.hpp"
#include "mla/device_bench.hpp"
#include "mla/error.hpp"
#include "run/device_inputs.hpp"
#include "run/gpu_bench.hpp"
#include "run/nvml.hpp"

namespace {

using namespace mla;

constexpr std::int64_t kL2 = std::int64_t{60} << 20;

TEST(ColdRotation, ReadsFourTimesTheL2InARound) {
  // One request of 1024 keys reads 1024 * 1152 B = 1.125 MiB: 240 MiB need 214 sets.
  const AttentionShape shape = parse_shape("decode latent h16 l512 r64 p128 v128 1q1s1k b64");
  const run::Rotation rotation = run::cold_rotation(shape, kL2, 1e12);
  EXPECT_EQ(rotation.sets, 214);
  EXPECT_TRUE(rotation.cold);
}

TEST(ColdRotation, CountsWhatIsReadNotWhatIsStored) {
  // A window of 512 of 64k keys: 32 * 512 * 1152 B = 18 MiB a call, though a set takes 2.25 GiB.
  const AttentionShape shape = parse_shape("decode latent h16 l512 r64 p128 v128 32q1s64k w512 b64");
  EXPECT_EQ(run::cold_rotation(shape, kL2, 1e12).sets, 14);
  EXPECT_NEAR(run::set_bytes(shape), 32.0 * 65536 * 1152, 1);
  // Memory for three: two calls between two on one set read 36 MiB, less than twice the L2.
  const run::Rotation tight = run::cold_rotation(shape, kL2, 3.5 * 32 * 65536 * 1152);
  EXPECT_EQ(tight.sets, 3);
  EXPECT_FALSE(tight.cold);
}

TEST(ColdRotation, LargeSetsAreTwoAndCold) {
  const AttentionShape shape = parse_shape("decode latent h16 l512 r64 p128 v128 128q1s8k b64");
  const run::Rotation rotation = run::cold_rotation(shape, kL2, 1e12);
  EXPECT_EQ(rotation.sets, 2);
  EXPECT_TRUE(rotation.cold);
  const run::Rotation one = run::cold_rotation(shape, kL2, 1.5 * run::set_bytes(shape));
  EXPECT_EQ(one.sets, 1);
  EXPECT_TRUE(one.cold) << "1.2 GB push out their own beginning";
}

TEST(ColdRotation, WeightsOfHeadSpaceRotateToo) {
  // 128 heads: W_UK and W_UV are 128 * 512 * 256 * 2 B = 32 MiB, one request of 1k keys 1.125 MiB.
  const AttentionShape shape = parse_shape("decode head h128 l512 r64 p128 v128 1q1s1k b64");
  EXPECT_EQ(run::cold_rotation(shape, kL2, 1e12).sets, 8);
}

TEST(RoughNormal, HasMeanZeroAndVarianceOne) {
  double sum = 0;
  double square = 0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = rough_normal(random_word(1, 2, static_cast<std::uint64_t>(i)));
    EXPECT_LE(std::abs(x), 3.46);
    sum += x;
    square += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(double{kCount}));
  EXPECT_NEAR(square / kCount, 1, 0.02);
  EXPECT_EQ(random_word(1, 2, 5), philox_4x32_10({1, 0, 2, 0}, {1, 0})[1])
      << "element 5 is word 1 of block 1";
}

TEST(Nvml, NamesWhatSlowsACard) {
  EXPECT_EQ(run::slowdown_words(0), "");
  EXPECT_EQ(run::slowdown_words(0x1), "") << "idle";
  EXPECT_EQ(run::slowdown_words(0x4), "power");
  EXPECT_EQ(run::slowdown_words(0x4 | 0x20), "power+thermal");
}

TEST(Nvml, ACardThatIsNotThereSaysSo) {
  const run::Card card("ffff:ff:1f.0");
  EXPECT_FALSE(card.why_none().empty());
  EXPECT_FALSE(card.look().power_w.has_value());
  EXPECT_TRUE(card.facts().driver.empty());
  EXPECT_FALSE(card.other_processes().has_value()) << "not known is not none";
}

TEST(InjectedSlowdown, IsAShareAndNothingElse) {
  const char* const name = "MLA_BENCH_INJECT_SLOWDOWN";
  unsetenv(name);
  EXPECT_EQ(run::injected_slowdown(), 0);
  setenv(name, "0.5%", 1);
  EXPECT_DOUBLE_EQ(run::injected_slowdown(), 0.005);
  setenv(name, "five", 1);
  expect_error([] { return run::injected_slowdown(); }, ErrorCode::kInvalidArgument, {name, "five"});
  unsetenv(name);
}

TEST(DeviceBench, ADeviceThatIsNoneIsRefusedWithItsName) {
  Device described;
  described.name = "h200";
  described.vendor = "nvidia";
  EXPECT_THROW(static_cast<void>(make_device_timer(described)), Error);
  EXPECT_THROW(static_cast<void>(measure_ceilings(described)), Error);
}

}  // namespace
