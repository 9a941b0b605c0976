// SPDX-License-Identifier: Apache-2.0
// The check before timing: passes what is right, and fails what is wrong in a sampled row.
#include <gtest/gtest.h>

#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "run/point.hpp"
#include "run/sampled_check.hpp"
#include "run/sweep_run.hpp"

namespace {

using namespace mla;

struct Tried {
  explicit Tried(const char* backend_name, const char* shape)
      : backend(get_backend(backend_name)),
        machine(verify::machine_for(backend)),
        prepared(make_case(shape), *machine.memory),
        execution(verify::execute(backend, prepared.stage, prepared.problem, machine.device, {})) {}
  static verify::Case make_case(const char* shape) {
    verify::Case c;
    c.shape = parse_shape(shape);
    return c;
  }
  [[nodiscard]] run::CheckResult check() const {
    return run::check_sample(prepared.problem, backend, execution);
  }

  const Backend& backend;
  verify::Machine machine;
  run::PreparedShape prepared;
  verify::Execution execution;
};

constexpr const char* kShapes[] = {
    "decode head h8 l64 r16 p32 v32 3q2s40 b16 q:f32 out:f32 cache:f32",
    "decode head h8 l64 r16 p32 v32 1q1s40_2q3s70 w16 sink4 b16 q:bf16 out:bf16 cache:bf16",
    "decode latent h3 l64 r16 p32 v32 2q1s33 b8 q:bf16 out:bf16 cache:bf16",
    "decode latent h3 l64 r16 p32 v32 2q2s33 topk7 b8 q:f32 out:f32 cache:f32",
    "prefill head h2 l64 r16 p32 v32 1q60s60 b16 q:f32 out:f32 cache:f32",
    "decode head h1 l64 r16 p32 v32 1q1s1 b16 q:f32 out:f32 cache:f32",
};

TEST(SampledCheck, PassesTheReferenceBackends) {
  for (const char* shape : kShapes) {
    for (const char* name : {"cpu-absorbed", "cpu-expanded"}) {
      const AttentionShape parsed = parse_shape(shape);
      if (!get_backend(name).supports(parsed, host_device())) continue;
      SCOPED_TRACE(std::string(name) + " " + shape);
      const run::CheckResult result = Tried(name, shape).check();
      EXPECT_TRUE(result.passed) << result.reason;
      EXPECT_GT(result.rows, 0);
      EXPECT_LE(result.share, 1.0);
    }
  }
}

TEST(SampledCheck, FailsAWrongElementOfAnEndRow) {
  for (const char* shape : kShapes) {
    SCOPED_TRACE(shape);
    Tried tried("cpu-absorbed", shape);
    tried.execution.out.front() += 1.0;
    const run::CheckResult first = tried.check();
    EXPECT_FALSE(first.passed);
    EXPECT_FALSE(first.reason.empty());
    tried.execution.out.front() -= 1.0;
    tried.execution.out.back() += 1.0;
    EXPECT_FALSE(tried.check().passed) << "last token, last head";
  }
}

TEST(SampledCheck, FailsAWrongLseAndARunThatFailed) {
  Tried tried("cpu-absorbed", kShapes[0]);
  ASSERT_FALSE(tried.execution.lse.empty());
  tried.execution.lse.front() += 0.5;
  EXPECT_FALSE(tried.check().passed);
  tried.execution.failure = "it threw: something";
  EXPECT_EQ(tried.check().reason, "it threw: something");
}

TEST(SampledCheck, SamplesRowsThatOnlyTheMiddleOfABatchCanHave) {
  // With 40 tokens six are looked at; a batch wrong everywhere but at its ends is found by the random ones.
  Tried tried("cpu-absorbed", "decode head h2 l32 r8 p16 v16 40q1s20 b16 q:f32 out:f32 cache:f32");
  const std::size_t row = 2 * 16;
  for (std::size_t i = row; i < tried.execution.out.size() - row; ++i) tried.execution.out[i] += 1.0;
  EXPECT_FALSE(tried.check().passed);
}

class PointTest : public testing::Test {
 protected:
  static spec::SweepPoint point(const char* backend, const char* shape) {
    spec::SweepPoint p;
    p.shape = parse_shape(shape);
    p.backend = backend;
    p.model = "custom";
    p.caches = spec::Caches::kWarm;
    return p;
  }
  spec::Measure measure_{
      .rule = {.noise = 0.5, .min_samples = 3, .max_samples = 5, .min_time = 0, .max_time = 5}};
  run::HostCeilings ceilings_{.read_bytes_per_s = 1e9, .f32_flops = 1e9, .f64_flops = 5e8};
};

TEST_F(PointTest, ARecordIsWholeAndItsNumbersAgree) {
  run::PointRunner runner(measure_, ceilings_, 1e9, nullptr);
  spec::SweepPoint p = point("cpu-absorbed", kShapes[0]);
  p.caches = spec::Caches::kCold;
  const report::BenchRecord r = runner.run(p);
  ASSERT_EQ(r.status, "ok") << r.reason;
  EXPECT_EQ(r.key, to_text(p.shape));
  EXPECT_EQ(r.backend, "cpu-absorbed");
  EXPECT_EQ(r.strategy, "absorbed");
  EXPECT_EQ(r.cache_state, "cold");
  EXPECT_EQ(r.timer, "wall");
  EXPECT_EQ(r.verified, "sample");
  EXPECT_LE(*r.error_share, 1.0);
  EXPECT_EQ(r.samples_us.size(), static_cast<std::size_t>(r.n));
  EXPECT_LE(*r.time_min_us, *r.time_low_us);
  EXPECT_LE(*r.time_low_us, *r.time_us);
  EXPECT_LE(*r.time_us, *r.time_high_us);
  EXPECT_GT(*r.time_us, 0);
  EXPECT_NEAR(*r.gbps, *r.bytes / *r.time_us / 1e3, 1e-9 * *r.gbps);
  EXPECT_NEAR(*r.gflops, *r.flops / *r.time_us / 1e3, 1e-9 * *r.gflops);
  EXPECT_NEAR(*r.floor_us, std::max(*r.bytes / 1e3, *r.least_flops / 1e3), 1e-9 * *r.floor_us);
  EXPECT_NEAR(*r.of_floor, *r.floor_us / *r.time_us, 1e-12);
  EXPECT_FALSE(r.plan.empty());
  EXPECT_NE(r.command.find("--shape '" + r.key + "'"), std::string::npos);
}

TEST_F(PointTest, WarmRowsHaveNoMemoryFloor) {
  run::PointRunner runner(measure_, ceilings_, 1e9, nullptr);
  const report::BenchRecord r = runner.run(point("cpu-absorbed", kShapes[0]));
  EXPECT_EQ(r.bound, "compute");
  EXPECT_NEAR(*r.floor_us, *r.least_flops / 1e3, 1e-9 * *r.floor_us);
}

TEST_F(PointTest, WhatCannotBeSaysWhyAndHasNoTime) {
  run::PointRunner runner(measure_, ceilings_, 1000, nullptr);  // bytes
  const report::BenchRecord big = runner.run(point("cpu-absorbed", kShapes[0]));
  EXPECT_EQ(big.status, "unsupported");
  EXPECT_NE(big.reason.find("memory"), std::string::npos);
  EXPECT_FALSE(big.time_us.has_value());
  EXPECT_EQ(big.verified, "no");
  run::PointRunner roomy(measure_, ceilings_, 1e9, nullptr);
  const report::BenchRecord other = roomy.run(point("cpu-expanded", kShapes[2]));
  EXPECT_EQ(other.status, "unsupported") << "latent space is nothing an expanding backend can do";
  EXPECT_FALSE(other.reason.empty());
}

TEST_F(PointTest, ASweepRunsEachRepetitionAndLeavesOutWhatIsDone) {
  spec::Sweep sweep{
      "s", "", {point("cpu-absorbed", kShapes[0]), point("cpu-absorbed", kShapes[2])}, measure_};
  sweep.measure.repetitions = 2;
  run::SweepOptions options;
  options.memory_limit = 1e9;
  std::vector<std::string> order;
  const run::SweepHooks hooks{
      .stop = nullptr, .on_start = nullptr, .on_record = [&](const report::BenchRecord& r) {
        order.push_back(run::done_key(r));
      }};
  EXPECT_EQ(run::count_points(sweep, options), 4U);
  const run::SweepOutcome all = run::run_sweep(sweep, ceilings_, options, hooks);
  ASSERT_EQ(all.records.size(), 4U);
  EXPECT_EQ(all.records[0].repetition, 0);
  EXPECT_EQ(all.records[2].repetition, 1) << "all points, then all again";
  EXPECT_EQ(all.records[0].key, all.records[2].key);
  EXPECT_EQ(all.records[0].spec, "s");

  options.done = {order[0], order[3]};
  EXPECT_EQ(run::count_points(sweep, options), 2U);
  options.done.clear();
  options.driver.filter = "topk|latent";
  EXPECT_EQ(run::count_points(sweep, options), 2U);
  options.driver.filter = "-latent";
  EXPECT_EQ(run::run_sweep(sweep, ceilings_, options, {}).records.size(), 2U);
  options.driver.filter = "(";
  EXPECT_THROW(static_cast<void>(run::count_points(sweep, options)), Error);
}

TEST_F(PointTest, AStopKeepsWhatIsFinished) {
  spec::Sweep sweep{
      "s", "", {point("cpu-absorbed", kShapes[0]), point("cpu-absorbed", kShapes[2])}, measure_};
  run::SweepOptions options;
  options.memory_limit = 1e9;
  bool stop = false;
  const run::SweepHooks hooks{.stop = [&] { return stop; },
                              .on_start = nullptr,
                              .on_record = [&](const report::BenchRecord&) { stop = true; }};
  const run::SweepOutcome outcome = run::run_sweep(sweep, ceilings_, options, hooks);
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.records.size(), 1U);
}

}  // namespace
