// SPDX-License-Identifier: Apache-2.0
#include "run/fill_record.hpp"

#include <algorithm>
#include <cmath>

#include "run/device_call.hpp"
#include "run/environment.hpp"
#include "run/work.hpp"

namespace mla::run {
namespace {

/// Faster than the ceilings by more than they vary: they were measured too low, or the work is counted too
/// high.
constexpr double kAboveFloor = 1.05;

}  // namespace

report::BenchRecord blank_record(const spec::SweepPoint& point, const spec::Measure& measure,
                                 std::string_view timer) {
  report::BenchRecord record;
  record.key = to_text(point.shape);
  record.backend = point.backend;
  record.device = "host";
  if (point.step) record.work = "step";
  record.cache_state = spec::name_of(point.caches);
  record.timer = timer;
  record.num_splits = point.options.num_splits;
  record.threads = point.options.threads;
  record.mode = spec::mode_text(point.options);
  record.model = point.model;
  record.command = spec::command_for(point, measure);
  record.when = utc_now();
  record.seed = static_cast<std::int64_t>(measure.seed);
  record.status = "ok";
  record.verified = spec::name_of(measure.verify);
  const Work work = count_work(point.shape);
  record.bytes = work.bytes + (point.step ? cache_write_bytes(point.shape) : 0);
  record.least_flops = work.least_flops();
  return record;
}

void add_samples(report::BenchRecord& record, const Samples& samples, std::int64_t new_tokens) {
  const Summary& s = samples.summary;
  record.n = static_cast<std::int64_t>(s.n);
  record.calls_per_sample = samples.calls_per_sample;
  record.time_us = s.median * kMicro;
  record.time_low_us = s.interval.low * kMicro;
  record.time_high_us = s.interval.high * kMicro;
  record.time_min_us = s.min * kMicro;
  record.time_p25_us = s.p25 * kMicro;
  record.time_p75_us = s.p75 * kMicro;
  if (std::isfinite(s.noise)) record.noise = s.noise;
  for (const double seconds : samples.seconds) record.samples_us.push_back(seconds * kMicro);
  record.gbps = *record.bytes / s.median / 1e9;
  record.gflops = *record.flops / s.median / 1e9;
  record.tokens_per_s = static_cast<double>(new_tokens) / s.median;
  if (!samples.converged) record.flags.emplace_back("noisy");
  if (samples.interrupted) record.flags.emplace_back("interrupted");
}

void add_floor(report::BenchRecord& record, const Ceilings& ceilings) {
  record.ceiling_gbps = ceilings.bytes_per_s / 1e9;
  record.ceiling_gflops = ceilings.flops / 1e9;
  const double compute = *record.least_flops / ceilings.flops;
  // Warm data may come from the caches, whose rate was not measured: then only the arithmetic is a floor.
  const double memory = record.cache_state == "cold" ? *record.bytes / ceilings.bytes_per_s : 0;
  const double work = std::max(compute, memory);
  const double floor = work + ceilings.launch_seconds;
  record.floor_us = floor * kMicro;
  record.of_floor = floor * kMicro / *record.time_us;
  record.bound = ceilings.launch_seconds > work ? "launch" : memory > compute ? "memory" : "compute";
  if (*record.of_floor > kAboveFloor) record.flags.emplace_back("above-floor");
}

}  // namespace mla::run
