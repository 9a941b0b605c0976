// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "report/record.hpp"
#include "run/gbench_driver.hpp"
#include "run/gpu_bench.hpp"
#include "run/host.hpp"
#include "spec/sweep.hpp"

namespace mla::run {

/// Name of a point for filters and for Google Benchmark's JSON: "cpu-absorbed/decode/head/h16/...", splits,
/// threads and caches behind.
[[nodiscard]] std::string point_name(const spec::SweepPoint& point);

struct SweepOptions {
  DriverOptions driver;
  double memory_limit = 0;         ///< bytes of host memory the inputs may take
  GpuBench* gpu = nullptr;         ///< what device backends run on, if there is one
  std::string env;                 ///< id of the environment the records refer to
  int process = 0;                 ///< which of the sweep's processes this is: it numbers the repetitions
  std::set<std::string> verified;  ///< texts of name_of: verified by an earlier process of this run
  std::set<std::string> done;      ///< resume: texts of done_key that need no measurement
};

struct SweepHooks {
  std::function<bool()> stop;                           ///< asked between samples and points
  std::function<void(std::string_view name)> on_start;  ///< a point is about to be measured
  std::function<void(const report::BenchRecord&)>
      on_record;  ///< a point is finished: keep it before the next starts
};

struct SweepOutcome {
  std::vector<report::BenchRecord> records;  ///< in the order measured
  bool interrupted = false;
};

/// The same name, from a record.
[[nodiscard]] std::string name_of(const report::BenchRecord& record);

/// What marks a point of a repetition as measured.
[[nodiscard]] std::string done_key(const report::BenchRecord& record);

/// The points of all repetitions of one process that the filter lets through and that are not done yet. Unsupported ones
/// count.
[[nodiscard]] std::size_t count_points(const spec::Sweep& sweep, const SweepOptions& options);

/// Measures one process's part of a sweep through Google Benchmark: all points, then all again for each further
/// repetition. A point is verified the first time. An
/// interrupt ends it after the sample in flight; that point's record is not kept.
[[nodiscard]] SweepOutcome run_sweep(const spec::Sweep& sweep, const HostCeilings& ceilings,
                                     const SweepOptions& options, const SweepHooks& hooks);

}  // namespace mla::run
