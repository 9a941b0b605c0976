// SPDX-License-Identifier: Apache-2.0
// What mla-bench does on a GPU: inputs made there are those the host computes, calls rotate, records are
// whole. Skips without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "../kernels/device_array.hpp"
#include "mla/device_bench.hpp"
#include "mla/device_ops.hpp"
#include "mla/error.hpp"
#include "run/device_inputs.hpp"
#include "run/gpu_bench.hpp"
#include "run/point.hpp"

namespace {

using namespace mla;
using mla::testing::DeviceArray;
using mla::testing::test_gpu;

TEST(GpuFill, IsWhatTheHostComputes) {
  MLA_NEEDS_GPU();
  const auto timer = make_device_timer(*test_gpu().device);
  constexpr std::int64_t kRows = 37, kCount = 70, kStride = 400, kOffset = 16;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kE4M3}) {
    SCOPED_TRACE(name_of(dtype));
    DeviceArray<std::uint8_t> array(std::vector<std::uint8_t>(kRows * kStride, 0xAB));
    const float scale = dtype == DType::kE4M3 ? 64.0F : 0.37F;
    fill_rows({.data = reinterpret_cast<std::byte*>(array.data()),
               .rows = kRows,
               .row_stride_bytes = kStride,
               .offset_bytes = kOffset,
               .count = kCount,
               .dtype = dtype,
               .scale = scale,
               .seed = 11,
               .stream = 3});
    const std::vector<std::uint8_t> got = array.read();
    std::vector<std::uint8_t> want(kRows * kStride, 0xAB);
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t i = 0; i < kCount; ++i) {
        const float x = scale * rough_normal(random_word(11, 3, static_cast<std::uint64_t>(r * kCount + i)));
        store_element(want.data() + r * kStride + kOffset, dtype, i, x);
      }
    }
    EXPECT_EQ(got, want);
  }
}

TEST(GpuTimer, GraphsReplayAndTimesAddUp) {
  MLA_NEEDS_GPU();
  const auto timer = make_device_timer(*test_gpu().device);
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  DeviceArray<std::uint8_t> array(kBytes);
  auto* data = reinterpret_cast<std::byte*>(array.data());
  int captured = 0;
  const auto one = timer->capture([&] {
    ++captured;
    fill_bytes(data, kBytes, std::byte{7}, timer->stream());
  });
  EXPECT_EQ(captured, 1);
  static_cast<void>(timer->seconds(*one, 1));
  bool ran = false;
  const double once = timer->seconds(*one, 1, [&] { ran = true; });
  const double ten = timer->seconds(*one, 10);
  EXPECT_TRUE(ran);
  EXPECT_EQ(captured, 1) << "a replay does not call back";
  EXPECT_GT(once, 5e-5) << "a GiB at no more than 20 TB/s";
  EXPECT_GT(ten, 5e-4) << "ten GiB at no more than 20 TB/s";
  EXPECT_EQ(array.read(4, kBytes - 4), std::vector<std::uint8_t>(4, 7));
  EXPECT_THROW(static_cast<void>(timer->capture([&] { throw Error(ErrorCode::kInternal, "x"); })), Error);
  EXPECT_NO_THROW(static_cast<void>(timer->seconds([&] {
    fill_bytes(data, 4, std::byte{0}, timer->stream());
  }))) << "a broken capture leaves the stream usable";
}

TEST(GpuInputs, SetsUseTheirOwnBlocksAndEachBlockOnce) {
  MLA_NEEDS_GPU();
  const AttentionShape shape =
      parse_shape("decode head h4 l64 r16 p32 v32 2q1s100_1q2s37 b16 cache:bf16_split");
  run::DeviceInputs inputs(shape, 5, 3, false, device_memory(*test_gpu().device));
  EXPECT_EQ(inputs.sets(), 3);
  std::set<std::int32_t> used;
  const std::size_t blocks[] = {7, 7, 3};  // ceil(keys / 16)
  for (int set = 0; set < 3; ++set) {
    const AttentionArgs args = inputs.args(set);
    std::vector<std::int32_t> table(static_cast<std::size_t>(3) * 7);
    device_memory(*test_gpu().device).to_host(table.data(), args.cache.block_table.data, table.size() * 4);
    for (std::size_t b = 0; b < 3; ++b) {
      for (std::size_t i = 0; i < blocks[b]; ++i) {
        EXPECT_TRUE(used.insert(table[b * 7 + i]).second);
        EXPECT_LT(table[b * 7 + i], args.cache.num_blocks);
      }
    }
  }
  EXPECT_EQ(used.size(), 3U * 17U);
  EXPECT_NE(inputs.args(0).w_uk.data, inputs.args(1).w_uk.data);
  EXPECT_EQ(inputs.args(0).w_uk.data, inputs.args(3).w_uk.data);
  // A fresh set is all random: no row repeats and nothing is left at zero.
  const std::vector<double> latent = inputs.latent(0, 100);
  EXPECT_EQ(latent.size(), 100U * 80U);
  double square = 0;
  for (const double x : latent) square += x * x;
  EXPECT_NEAR(square / static_cast<double>(latent.size()), 1.0, 0.1);
  EXPECT_FALSE(std::equal(latent.begin(), latent.begin() + 80, latent.begin() + 80));
  inputs.poison_outputs();
  EXPECT_NE(inputs.unwritten_outputs().find("512 elements"), std::string::npos) << inputs.unwritten_outputs();
}

TEST(GpuInputs, SharedPrefixesAreTheSameBlocksWithinASet) {
  MLA_NEEDS_GPU();
  const AttentionShape shape =
      parse_shape("decode latent h4 l64 r16 q1s9_2q1s100_1q2s97 prefix96@1+3 b16 cache:bf16");
  run::DeviceInputs inputs(shape, 5, 2, false, device_memory(*test_gpu().device));
  std::set<std::int32_t> used;
  for (int set = 0; set < 2; ++set) {
    std::vector<std::int32_t> table(static_cast<std::size_t>(4) * 7);
    device_memory(*test_gpu().device)
        .to_host(table.data(), inputs.args(set).cache.block_table.data, table.size() * 4);
    for (const std::size_t b : {2, 3}) {
      EXPECT_TRUE(std::equal(table.begin() + 7, table.begin() + 13,
                             table.begin() + static_cast<std::ptrdiff_t>(b) * 7));
    }
    used.insert(table[0]);
    used.insert(table.begin() + 7, table.end());
  }
  EXPECT_EQ(used.size(), 2U * (1 + 6 + 3));
}

TEST(GpuInputs, AStepWritesTheNewTokensRowsWhereTheTableSays) {
  MLA_NEEDS_GPU();
  const AttentionShape shape = parse_shape("decode head h4 l64 r16 p32 v32 2q2s100 b16");
  DeviceMemory& memory = device_memory(*test_gpu().device);
  run::DeviceInputs inputs(shape, 5, 2, true, memory);
  const std::vector<double> before = inputs.latent(1, 100);
  device_ops::write_cache(inputs.cache_write(0));
  memory.synchronize();
  const std::vector<double> after = inputs.latent(1, 100);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 98 * 80, after.begin())) << "old rows stay";
  for (const std::size_t row : {98U, 99U}) {
    double square = 0;
    for (std::size_t i = 0; i < 64; ++i) square += after[row * 80 + i] * after[row * 80 + i];
    EXPECT_NEAR(square / 64, 1, 0.02) << "normalised";
    EXPECT_FALSE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(row) * 80,
                            before.begin() + static_cast<std::ptrdiff_t>(row + 1) * 80,
                            after.begin() + static_cast<std::ptrdiff_t>(row) * 80));
  }
  EXPECT_NE(inputs.cache_write(0).slot_mapping.data, inputs.cache_write(1).slot_mapping.data);
}

TEST(GpuPoint, IsVerifiedTimedAndComparedWithTheCeilings) {
  MLA_NEEDS_GPU();
  run::GpuBench gpu(*test_gpu().device);
  EXPECT_GT(gpu.ceilings().read_bytes_per_s, 1e11);
  EXPECT_GT(gpu.ceilings().bf16_flops, 1e12);
  EXPECT_GT(gpu.ceilings().f32_flops, 1e11);
  EXPECT_GT(gpu.ceilings().kernel_seconds, 0);
  EXPECT_GT(gpu.ceilings().graph_seconds, 0);
  spec::Measure measure;
  measure.preheat = 0.01;
  measure.rule = {.noise = 0.05, .min_samples = 7, .max_samples = 50, .min_time = 0, .max_time = 2};
  run::PointRunner runner(measure, {}, 1e9, nullptr, &gpu);
  spec::SweepPoint point;
  point.shape = parse_shape("decode latent h16 l512 r64 p128 v128 4q1s1000 b64");
  point.backend = "cuda-naive";
  point.model = "custom";
  const report::BenchRecord r = runner.run(point);
  ASSERT_EQ(r.status, "ok") << r.reason;
  EXPECT_EQ(r.timer, "graph");
  EXPECT_EQ(r.device, test_gpu().device->name);
  EXPECT_GT(r.input_sets, 1);
  EXPECT_EQ(r.calls_per_sample % r.input_sets, 0);
  EXPECT_GT(*r.time_us, 0);
  EXPECT_GT(*r.event_us, 0);
  EXPECT_LE(*r.error_share, 1);
  EXPECT_GT(*r.of_floor, 0);
  EXPECT_LE(*r.of_floor, 1.05);
  // The whole step: projections around a backend, and a backend that has its own.
  for (const char* name : {"cuda-splitkv", "cuda-naive"}) {
    SCOPED_TRACE(name);
    if (find_backend(name) == nullptr || !device_ops::projections_available()) continue;
    spec::SweepPoint step = point;
    step.shape.space = QuerySpace::kHead;
    step.step = true;
    step.backend = name;
    const report::BenchRecord whole = runner.run(step);
    ASSERT_EQ(whole.status, "ok") << whole.reason;
    EXPECT_EQ(whole.work, "step");
    EXPECT_LE(*whole.error_share, 1);
    EXPECT_NE(whole.plan.find("cache write"), std::string::npos);
  }
  // The same call on warm inputs is one set and has no memory floor.
  point.caches = spec::Caches::kWarm;
  const report::BenchRecord warm = runner.run(point);
  ASSERT_EQ(warm.status, "ok") << warm.reason;
  EXPECT_EQ(warm.input_sets, 1);
  EXPECT_NE(warm.bound, "memory");
  // A later repetition lies elsewhere and is not verified again.
  const report::BenchRecord again = runner.run(point, 1, true);
  ASSERT_EQ(again.status, "ok") << again.reason;
  EXPECT_EQ(again.repetition, 1);
  EXPECT_EQ(again.verified, "earlier");
  EXPECT_FALSE(again.error_share.has_value());
}

TEST(GpuPoint, AnInjectedSlowdownIsMarked) {
  MLA_NEEDS_GPU();
  setenv("MLA_BENCH_INJECT_SLOWDOWN", "50%", 1);
  run::GpuBench gpu(*test_gpu().device);
  unsetenv("MLA_BENCH_INJECT_SLOWDOWN");
  spec::Measure measure;
  measure.preheat = 0.01;
  measure.rule = {.noise = 0.05, .min_samples = 7, .max_samples = 50, .min_time = 0, .max_time = 2};
  run::PointRunner runner(measure, {}, 1e9, nullptr, &gpu);
  spec::SweepPoint point;
  point.shape = parse_shape("decode latent h16 l512 r64 p128 v128 4q1s1000 b64");
  point.backend = "cuda-naive";
  const report::BenchRecord r = runner.run(point);
  ASSERT_EQ(r.status, "ok") << r.reason;
  EXPECT_NE(std::ranges::find(r.flags, "slowed"), r.flags.end());
}

}  // namespace
