// SPDX-License-Identifier: Apache-2.0
// Described devices: floors by hand, and reasons where there is none.
#include <gtest/gtest.h>

#include "expect_error.hpp"
#include "run/modelled.hpp"

namespace {

using namespace mla;

Device device() {
  Device d;
  d.name = "paper";
  d.memory_bytes = 1'000'000'000;
  d.memory_bandwidth = 1e12;
  d.dense_flops = {{"bf16", 1e14}};
  return d;
}

spec::SweepPoint point(const char* shape, const char* backend = "model-absorbed") {
  spec::SweepPoint p;
  p.shape = parse_shape(shape);
  p.backend = backend;
  return p;
}

TEST(Modelled, FloorsByHand) {
  // One token, 16 heads, 1000 keys (WorkCount.OfOneDecodedTokenByHand): 1,186,880 B and 34,816,000 FLOP.
  const report::BenchRecord r =
      run::model_point(point("decode latent h16 l512 r64 p128 v128 1q1s1000"), device(), "s");
  EXPECT_EQ(r.status, "ok");
  EXPECT_EQ(r.timer, "modelled");
  EXPECT_EQ(r.device, "paper");
  EXPECT_EQ(r.flags, std::vector<std::string>{"modelled"});
  EXPECT_EQ(r.n, 0);
  EXPECT_TRUE(r.samples_us.empty());
  EXPECT_EQ(r.bound, "memory");
  EXPECT_NEAR(*r.time_us, 1186880.0 / 1e12 * 1e6, 1e-9);
  // 128 heads reach the other roof: 2 * 128 * 1000 * 1088 / 1e14 = 2.785 us against 1.43 us of traffic.
  const report::BenchRecord wide =
      run::model_point(point("decode latent h128 l512 r64 p128 v128 1q1s1000"), device(), "s");
  EXPECT_EQ(wide.bound, "compute");
  EXPECT_NEAR(*wide.time_us, 2.78528, 1e-6);
  // Expanding 1000 rows costs 2 * 128 * 512 * 256 a row beside the attention.
  const report::BenchRecord expanded = run::model_point(
      point("decode head h128 l512 r64 p128 v128 1q1s1000", "model-expanded"), device(), "s");
  EXPECT_NEAR(*expanded.time_us, 2.0 * 128 * 1000 * (320 + 512 * 256) / 1e14 * 1e6, 1e-6);
  EXPECT_EQ(expanded.strategy, "expanded");
}

TEST(Modelled, SaysWhyThereIsNoFloor) {
  EXPECT_NE(run::model_point(point("decode latent 1q1s9", "model-expanded"), device(), "s")
                .reason.find("nothing to expand"),
            std::string::npos);
  EXPECT_NE(
      run::model_point(point("decode latent 1q1s9 q:f32"), device(), "s").reason.find("dense peak for f32"),
      std::string::npos);
  const report::BenchRecord big = run::model_point(point("decode latent 100q1s16k"), device(), "s");
  EXPECT_EQ(big.status, "unsupported");
  EXPECT_NE(big.reason.find("1.89 GB does not fit"), std::string::npos) << big.reason;
  EXPECT_FALSE(big.time_us.has_value());
  Device slow = device();
  slow.memory_bandwidth = 0;
  EXPECT_NE(run::model_point(point("decode latent 1q1s9"), slow, "s").reason.find("bandwidth"),
            std::string::npos);
  expect_error([] { return run::model_point(point("decode latent 1q1s9", "cpu-absorbed"), device(), "s").n; },
               ErrorCode::kInvalidArgument, {"'cpu-absorbed'", "paper"});
}

TEST(Modelled, Fp8CachesMultiplyInTheQuerysTypeUnlessBothAreFp8) {
  Device d = device();
  d.dense_flops["e4m3"] = 2e14;
  const char* both = "decode latent h128 l512 r64 p128 v128 1q1s1000 q:e4m3 cache:fp8";
  const char* rows = "decode latent h128 l512 r64 p128 v128 1q1s1000 cache:fp8_ds_mla";
  EXPECT_DOUBLE_EQ(*run::model_point(point(both), d, "s").ceiling_gflops, 2e5);
  EXPECT_DOUBLE_EQ(*run::model_point(point(rows), d, "s").ceiling_gflops, 1e5);
}

}  // namespace
