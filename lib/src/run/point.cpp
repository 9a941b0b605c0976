// SPDX-License-Identifier: Apache-2.0
#include "run/point.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "mla/error.hpp"
#include "mla/plugin_host.hpp"
#include "report/table.hpp"
#include "run/backends.hpp"
#include "run/environment.hpp"
#include "run/fill_record.hpp"
#include "run/peer_point.hpp"
#include "run/sampled_check.hpp"
#include "run/threads.hpp"
#include "run/work.hpp"

namespace mla::run {
namespace {

verify::Case case_of(const spec::SweepPoint& point, std::uint64_t seed) {
  verify::Case c;
  c.shape = point.shape;
  c.num_splits = point.options.num_splits;
  c.batch_invariant = point.options.batch_invariant;
  c.prefix_reads = point.options.prefix_reads;
  c.seed = seed;
  return c;
}

}  // namespace

double estimated_bytes(const AttentionShape& shape) {
  const MlaDims& d = shape.dims;
  double keys = 0;
  for (const Request& request : shape.batch) keys += request.kv_len;
  const auto tokens = static_cast<double>(shape.num_tokens());
  const double heads = d.num_heads;
  const double weights =
      shape.space == QuerySpace::kHead ? heads * d.kv_lora_rank * (d.qk_nope_head_dim + d.v_head_dim) : 0;
  const double queries = tokens * heads * std::max(d.head_width(), d.latent_width());
  // Each number as a double for the reference, then encoded once on the host and once where the backend reads
  // it; a third of the cache's blocks is left unused between the others.
  const auto cache_row = static_cast<double>(cache_layout(shape.cache, d).bytes_per_token());
  const auto element = static_cast<double>(size_of(shape.q_dtype));
  return keys * (8.0 * d.latent_width() + 3 * cache_row) + (weights + queries) * (8 + 2 * element) +
         tokens * heads * std::max(d.kv_lora_rank, d.v_head_dim) *
             (8 + 2 * static_cast<double>(size_of(shape.out_dtype))) +
         tokens * shape.topk * 12.0;
}

Support supports_here(const Backend& backend, const spec::SweepPoint& point, const Device* gpu) {
  if (backend.info().on_device) {
    return gpu == nullptr ? Support::no("it needs a GPU, and " + real_devices().why_none)
                          : DeviceCall::supports(backend, point, *gpu);
  }
  if (Support mode = supports_mode(backend, point.options); !mode) return mode;
  if (point.step) return Support::no("a whole step is timed on GPUs; on a CPU only the attention is");
  return backend.supports(point.shape, host_device());
}

PointRunner::PointRunner(const spec::Measure& measure, const HostCeilings& ceilings, double memory_limit,
                         std::function<bool()> stop, GpuBench* gpu)
    : given_(measure),
      measure_(measure),
      ceilings_(ceilings),
      memory_limit_(memory_limit),
      stop_(std::move(stop)),
      gpu_(gpu),
      flusher_(hardware_threads()) {}

PreparedShape& PointRunner::prepare(const verify::Case& c, DeviceMemory& memory) {
  const std::string text = verify::to_text(c);
  const auto found =
      std::ranges::find_if(kept_, [&](const Kept& k) { return k.text == text && k.memory == &memory; });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return *kept_.front().shape;
  }
  const double bytes = estimated_bytes(c.shape);
  double total = bytes;
  for (const Kept& k : kept_) total += k.bytes;
  while (!kept_.empty() && total > memory_limit_) {
    total -= kept_.back().bytes;
    kept_.pop_back();
  }
  kept_.push_front({text, &memory, std::make_unique<PreparedShape>(c, memory), bytes});
  return *kept_.front().shape;
}

report::BenchRecord PointRunner::run(const spec::SweepPoint& point, int repetition, bool verified_before) {
  measure_ = given_;
  if (verified_before) measure_.verify = spec::VerifyMode::kNo;
  report::BenchRecord record = blank_record(point, given_, timer_.name());
  if (verified_before) record.verified = "earlier";
  record.repetition = repetition;
  const auto give_up = [&](const char* status, std::string reason) {
    record.status = status;
    record.reason = std::move(reason);
    record.verified = spec::name_of(spec::VerifyMode::kNo);
    return record;
  };
  const Backend& backend = backend_named(point.backend);
  const peer::PeerBackend* const outside = as_peer(backend);
  record.strategy = backend.info().strategy;
  record.origin = outside == nullptr ? origin_of(backend) : std::string("peer");
  record.flops = count_work(point.shape).flops_of(backend.info().strategy);
  const bool on_device = backend.info().on_device;
  if (gpu_ != nullptr && on_device) record.device = gpu_->device().name;
  const Support support = supports_here(backend, point, gpu_ == nullptr ? nullptr : &gpu_->device());
  if (!support) return give_up("unsupported", support.why);
  try {
    if (on_device) {
      record.timer = "graph";
      record.flags = build_flags();
      gpu_->begin_repetition(repetition, measure_.seed);
      gpu_->measure(backend, point, measure_, stop_, record);
      return record;
    }
    if (outside != nullptr && gpu_ != nullptr && runs_on(*outside, gpu_->device())) {
      record.device = gpu_->device().name;
      gpu_->measure_peer(*outside, point, measure_, record);
      return record;
    }
    if (const double bytes = estimated_bytes(point.shape); bytes > memory_limit_) {
      return give_up("unsupported",
                     fmt::format("its inputs need about {} of this host's memory, {} are allowed",
                                 report::human_gib(bytes), report::human_gib(memory_limit_)));
    }
    const verify::Machine machine = verify::machine_for(backend);
    measure(backend, point, machine, prepare(case_of(point, measure_.seed), *machine.memory), record);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    const bool cannot = error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kDevice;
    return give_up(cannot ? "unsupported" : "error", error.what());
  } catch (const std::bad_alloc&) {
    return give_up("error", "out of memory");
  }
  return record;
}

void PointRunner::measure(const Backend& backend, const spec::SweepPoint& point,
                          const verify::Machine& machine, PreparedShape& prepared,
                          report::BenchRecord& record) {
  if (measure_.verify == spec::VerifyMode::kSample) {
    const verify::Execution execution =
        verify::execute(backend, prepared.stage, prepared.problem, machine.device, point.options);
    const CheckResult check = check_sample(prepared.problem, backend, execution);
    record.error_share = check.share;
    record.reason = check.reason;
    if (!check.passed) record.status = "wrong";
  } else if (measure_.verify == spec::VerifyMode::kFull) {
    const verify::Verdict verdict = verify::run_case(backend, prepared.problem.get_case());
    record.error_share = verdict.share();
    record.reason = verdict.reason;
    if (verdict.outcome == verify::Outcome::kFailed) record.status = "wrong";
  }
  if (record.status != "ok") return;  // a wrong result is not worth a time

  const auto before = std::chrono::steady_clock::now();
  const std::unique_ptr<Plan> plan = backend.plan(point.shape, machine.device, point.options);
  record.plan_us = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count() * kMicro;
  record.plan = plan->describe();
  record.workspace_bytes = static_cast<std::int64_t>(plan->workspace_bytes());
  if (const peer::PeerBackend* const outside = as_peer(backend); outside != nullptr) {
    time_peer(*outside, *plan, prepared.stage.args(), point, measure_, {}, record);
    add_host_floor(record);
    return;
  }
  const std::span<std::byte> workspace = prepared.stage.workspace(plan->workspace_bytes());
  const auto call = [&] { backend.run(*plan, prepared.stage.args(), workspace); };
  std::function<void()> flush;
  if (point.caches == spec::Caches::kCold) flush = [&] { flusher_.flush(); };
  const Samples samples = sample(timer_, measure_.rule, call, flush, stop_);

  record.flags = host_flags(hardware_threads());
  add_samples(record, samples, point.shape.num_tokens());
  add_host_floor(record);
}

void PointRunner::add_host_floor(report::BenchRecord& record) const {
  add_floor(record, {.bytes_per_s = ceilings_.read_bytes_per_s,
                     .flops = std::max(ceilings_.f32_flops, ceilings_.f64_flops)});
}

}  // namespace mla::run
