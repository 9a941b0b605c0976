// SPDX-License-Identifier: Apache-2.0
#include "run/gpu_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "mla/error.hpp"
#include "mla/random.hpp"
#include "report/table.hpp"
#include "run/fill_record.hpp"
#include "run/host_copy.hpp"
#include "run/peer_point.hpp"
#include "run/round_timer.hpp"
#include "verify/run_case.hpp"

namespace mla::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMemoryShare = 0.7;                       // of what is free goes to inputs at most
constexpr double kLookSeconds = 0.02;                      // load under which clocks and power are read
constexpr std::size_t kPlaceBytes = std::size_t{2} << 20;  // memory is mapped in pieces of this size
constexpr std::int64_t kPlaces = 64;
constexpr std::uint64_t kPlaceStream = 0x706c616365;  // "place"
constexpr double kEagerSamples = 9;
constexpr double kEagerShare = 0.1;  // of the time for a point, for calls launched by themselves

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return quantile(values, 0.5);
}

}  // namespace

double injected_slowdown() {
  const char* const text = std::getenv("MLA_BENCH_INJECT_SLOWDOWN");
  return text == nullptr ? 0 : spec::parse_percent(text, "MLA_BENCH_INJECT_SLOWDOWN");
}

struct GpuBench::Prepared {
  Prepared(const spec::SweepPoint& point, std::uint64_t seed, Rotation rotating, DeviceMemory& memory)
      : rotation(rotating), inputs(point.shape, seed, rotating.sets, point.step, memory) {}
  Rotation rotation;
  DeviceInputs inputs;
  std::optional<SampledCheck> check;  ///< made when it is first needed
};

GpuBench::GpuBench(const Device& device)
    : device_(device),
      memory_(device_memory(device)),
      timer_(make_device_timer(device)),
      ceilings_(measure_ceilings(device)),
      card_(timer_->bus_id()),
      budget_(kMemoryShare * static_cast<double>(timer_->free_bytes())),
      slowdown_(injected_slowdown()) {}

GpuBench::~GpuBench() = default;

void GpuBench::add_facts(report::Environment& environment) const {
  const auto fact = [&](const char* key, report::Cell value) {
    environment.facts.emplace_back(key, std::move(value));
  };
  fact("gpu", device_.title);
  fact("gpu_ordinal", std::int64_t{device_.ordinal});
  fact("gpu_compute_capability", std::int64_t{device_.compute_capability});
  fact("gpu_sms", std::int64_t{device_.num_sms});
  fact("gpu_memory_bytes", device_.memory_bytes);
  fact("gpu_l2_bytes", device_.l2_bytes);
  fact("gpu_runtime", device_.source);
  const CardFacts card = card_.facts();
  if (!card.driver.empty()) fact("gpu_driver", card.driver);
  if (!card.id.empty()) fact("gpu_id", card.id);
  if (card.power_limit_w) fact("gpu_power_limit_w", *card.power_limit_w);
  if (card.max_sm_clock_mhz) fact("gpu_max_sm_clock_mhz", *card.max_sm_clock_mhz);
  if (const auto others = card_.other_processes()) fact("gpu_other_processes", std::int64_t{*others});
  if (!card_.why_none().empty()) fact("nvml", card_.why_none());
  fact("gpu_read_gbps", ceilings_.read_bytes_per_s / 1e9);
  fact("gpu_copy_gbps", ceilings_.copy_bytes_per_s / 1e9);
  fact("gpu_bf16_gflops", ceilings_.bf16_flops / 1e9);
  fact("gpu_bf16_method", ceilings_.bf16_method);
  fact("gpu_f32_gflops", ceilings_.f32_flops / 1e9);
  fact("gpu_kernel_us", ceilings_.kernel_seconds * kMicro);
  fact("gpu_graph_us", ceilings_.graph_seconds * kMicro);
  fact("gpu_call_us", ceilings_.call_seconds * kMicro);
}

GpuBench::Prepared& GpuBench::prepare(const spec::SweepPoint& point, const spec::Measure& measure) {
  const std::string text =
      fmt::format("{} {} {} {}", to_text(point.shape), spec::name_of(point.caches), point.step, measure.seed);
  const auto found = std::ranges::find(kept_, text, &Kept::text);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return *kept_.front().prepared;
  }
  const double one = set_bytes(point.shape);
  if (one > budget_) {
    throw Error(ErrorCode::kUnsupported, fmt::format("its inputs need {} of GPU memory, {} can be had",
                                                     report::human_gib(one), report::human_gib(budget_)));
  }
  const Rotation rotation = point.caches == spec::Caches::kCold
                                ? cold_rotation(point.shape, device_.l2_bytes, budget_)
                                : Rotation{};
  double total = one * rotation.sets;
  for (const Kept& k : kept_) total += k.prepared->inputs.bytes();
  while (!kept_.empty() && total > budget_) {
    total -= kept_.back().prepared->inputs.bytes();
    kept_.pop_back();
  }
  kept_.push_front({text, std::make_unique<Prepared>(point, measure.seed, rotation, memory_)});
  return *kept_.front().prepared;
}

void GpuBench::begin_repetition(int repetition, std::uint64_t seed) {
  if (repetition == repetition_) return;
  repetition_ = repetition;
  kept_.clear();
  const CounterRng rng(seed, kPlaceStream);
  spacer_ = verify::Buffer(memory_, kPlaceBytes * static_cast<std::size_t>(rng.between(
                                                      static_cast<std::uint64_t>(repetition), 1, kPlaces)));
}

void GpuBench::measure(const Backend& backend, const spec::SweepPoint& point, const spec::Measure& measure,
                       const std::function<bool()>& stop, report::BenchRecord& record) {
  if (!broken_.empty()) {
    record.status = "error";
    record.reason = "the GPU's context was lost at an earlier point: " + broken_;
    return;
  }
  Prepared& prepared = prepare(point, measure);
  try {
    static_cast<void>(DeviceCall(backend, point, device_));  // warms the planner's code
    const auto before = Clock::now();
    const DeviceCall planned(backend, point, device_);
    record.plan_us = seconds_since(before) * kMicro;
    record.plan = planned.describe();
    record.workspace_bytes = static_cast<std::int64_t>(planned.workspace_bytes());
    record.input_sets = prepared.inputs.sets();
    const verify::Buffer scratch(memory_, planned.workspace_bytes());
    fill_bytes(scratch.data(), scratch.size(), verify::kNanByte);
    const std::span<std::byte> workspace(scratch.data(), scratch.size());
    if (point.caches == spec::Caches::kCold && !prepared.rotation.cold)
      record.flags.emplace_back("partly-warm");
    verify(backend, planned, prepared, workspace, measure, record);
    if (record.status == "ok") time(planned, prepared, workspace, measure, stop, record);
    memory_.synchronize();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDevice) throw;
    record.status = "error";
    record.reason = error.what();
    try {
      memory_.synchronize();
    } catch (const Error& lost) {
      broken_ = lost.what();
    }
  }
}

void GpuBench::verify(const Backend& backend, const DeviceCall& planned, Prepared& prepared,
                      std::span<std::byte> workspace, const spec::Measure& measure,
                      report::BenchRecord& record) {
  DeviceInputs& inputs = prepared.inputs;
  inputs.poison_outputs();
  planned.run(inputs, 0, workspace, timer_->stream());
  memory_.synchronize();
  if (measure.verify == spec::VerifyMode::kNo) return;
  CheckResult result;
  result.reason = inputs.unwritten_outputs();
  if (result.reason.empty()) {
    if (!prepared.check) prepared.check.emplace(inputs);
    result = prepared.check->judge(backend.info().strategy, planned.rounding(prepared.check->shape()),
                                   inputs.outputs());
    record.error_share = result.share;
  }
  if (!result.passed) {
    record.status = "wrong";
    record.reason = result.reason;
    return;
  }
  if (measure.verify != spec::VerifyMode::kFull) return;
  if (!record.work.empty()) {  // mla-verify knows no whole steps
    record.verified = spec::name_of(spec::VerifyMode::kSample);
    return;
  }
  verify::Case c;
  c.shape = inputs.shape();
  c.seed = inputs.seed();
  const verify::Verdict verdict = verify::CaseRun(c).judge(backend, {device_, &memory_});
  record.error_share = verdict.share();
  if (verdict.outcome == verify::Outcome::kFailed) {
    record.status = "wrong";
    record.reason = verdict.reason;
  }
}

void GpuBench::time(const DeviceCall& planned, Prepared& prepared, std::span<std::byte> workspace,
                    const spec::Measure& measure, const std::function<bool()>& stop,
                    report::BenchRecord& record) {
  const DeviceInputs& inputs = prepared.inputs;
  const auto call = [&](std::int64_t i) { planned.run(inputs, i, workspace, timer_->stream()); };
  std::vector<double> eager{timer_->seconds([&] { call(0); })};
  if (eager.front() > measure.rule.max_time) {
    // Nothing can be repeated within the time that is given: the one call is what there is.
    Samples samples;
    samples.seconds = eager;
    samples.summary = summarize(eager);
    record.timer = "event";
    record.event_us = eager.front() * kMicro;
    add_samples(record, samples, inputs.shape().num_tokens());
    add_gpu_floor(inputs.shape(), record);
    return;
  }
  const double left = kEagerShare * measure.rule.max_time;
  const auto more = static_cast<std::int64_t>(std::min(left / eager.front(), kEagerSamples - 1.0));
  for (std::int64_t i = 1; i <= more; ++i) eager.push_back(timer_->seconds([&] { call(i); }));
  record.event_us = median_of(eager) * kMicro;

  const RoundLayout layout = round_layout(inputs.sets(), *std::ranges::min_element(eager), slowdown_);
  if (layout.extra > 0) record.flags.emplace_back("slowed");
  RoundTimer timer(*timer_, call, layout);
  const std::int64_t calls = timer.calls_in_part();
  record.timer = timer.name();
  if (!timer.why_no_graph().empty()) record.flags.emplace_back("no-graph");

  // Pre-heat; the card is looked at under the last of that load.
  CardState before;
  double per_call = timer.replay(calls, [&] { before = card_.look(); });
  for (const auto start = Clock::now(); seconds_since(start) < measure.preheat && !(stop && stop());)
    per_call = timer.replay(calls, [&] { before = card_.look(); });
  Samples samples = sample(timer, measure.rule, {}, {}, stop);
  CardState after;
  const auto look_calls = static_cast<std::int64_t>(std::ceil(kLookSeconds / per_call));
  static_cast<void>(timer.replay(look_calls, [&] { after = card_.look(); }));
  samples.calls_per_sample = static_cast<int>((samples.calls_per_sample + calls - 1) / calls * calls);
  add_samples(record, samples, inputs.shape().num_tokens());
  const auto mean = [](const std::optional<double>& a,
                       const std::optional<double>& b) -> std::optional<double> {
    if (a && b) return (*a + *b) / 2;
    return std::nullopt;
  };
  record.sm_clock_mhz = mean(before.sm_clock_mhz, after.sm_clock_mhz);
  record.power_w = mean(before.power_w, after.power_w);
  record.slowed_by = slowdown_words(before.slowed_by | after.slowed_by);
  if (record.slowed_by.find("thermal") != std::string::npos ||
      record.slowed_by.find("brake") != std::string::npos)
    record.flags.emplace_back("throttled");
  if (card_.other_processes().value_or(0) > 0) record.flags.emplace_back("shared");
  add_gpu_floor(inputs.shape(), record);
}

void GpuBench::add_gpu_floor(const AttentionShape& shape, report::BenchRecord& record) const {
  const bool single = shape.q_dtype == DType::kF32;
  add_floor(record, {.bytes_per_s = ceilings_.read_bytes_per_s,
                     .flops = single ? ceilings_.f32_flops : ceilings_.bf16_flops,
                     .launch_seconds = ceilings_.kernel_seconds});
}

void GpuBench::measure_peer(const peer::PeerBackend& backend, const spec::SweepPoint& point,
                            const spec::Measure& measure, report::BenchRecord& record) {
  DeviceInputs inputs(point.shape, measure.seed, 1, false, memory_);
  const HostCopy copy(point.shape, inputs.args(0), memory_);
  const std::unique_ptr<Plan> plan = backend.plan(point.shape, device_, point.options);
  record.plan = plan->describe();
  if (measure.verify != spec::VerifyMode::kNo) {
    backend.run(*plan, copy.args(), {});
    const CheckResult result =
        SampledCheck(inputs).judge(backend.info().strategy, backend.rounding(point.shape), copy.outputs());
    record.error_share = result.share;
    record.verified = spec::name_of(spec::VerifyMode::kSample);
    if (!result.passed) {
      record.status = "wrong";
      record.reason = result.reason;
      return;
    }
  }
  time_peer(backend, *plan, copy.args(), point, measure, {.gpu = true, .rotate_bytes = 4 * device_.l2_bytes},
            record);
  add_gpu_floor(point.shape, record);
}

}  // namespace mla::run
