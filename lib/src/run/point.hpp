// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "report/record.hpp"
#include "run/gpu_bench.hpp"
#include "run/host.hpp"
#include "run/sampler.hpp"
#include "spec/sweep.hpp"
#include "verify/problem.hpp"
#include "verify/run_case.hpp"
#include "verify/stage.hpp"

namespace mla::run {

/// A shape with its inputs in a backend's memory, made once for all backends and repetitions that share it.
struct PreparedShape {
  PreparedShape(const verify::Case& c, DeviceMemory& memory) : problem(c), stage(problem, memory) {}
  PreparedShape(const PreparedShape&) = delete;
  PreparedShape& operator=(const PreparedShape&) = delete;
  verify::Problem problem;
  verify::Stage stage;  ///< points into problem
};

/// Host memory a prepared shape takes, about: what is checked before anything is allocated.
[[nodiscard]] double estimated_bytes(const AttentionShape& shape);

/// Whether a point can be measured: on `gpu` (null: there is none) for a device backend, else on this host.
[[nodiscard]] Support supports_here(const Backend& backend, const spec::SweepPoint& point, const Device* gpu);

/// Measures points one after another: CPU backends on this host, device backends on `gpu` (null: there is
/// none).
class PointRunner {
 public:
  PointRunner(const spec::Measure& measure, const HostCeilings& ceilings, double memory_limit,
              std::function<bool()> stop, GpuBench* gpu = nullptr);

  /// Verifies (unless it was `verified_before`), then times. The outcome is always a record; only a failure of
  /// the program itself is thrown.
  [[nodiscard]] report::BenchRecord run(const spec::SweepPoint& point, int repetition = 0,
                                        bool verified_before = false);

 private:
  [[nodiscard]] PreparedShape& prepare(const verify::Case& c, DeviceMemory& memory);
  void measure(const Backend& backend, const spec::SweepPoint& point, const verify::Machine& machine,
               PreparedShape& prepared, report::BenchRecord& record);

  void add_host_floor(report::BenchRecord& record) const;

  const spec::Measure& given_;
  spec::Measure measure_;  ///< given_, as the point in hand needs it
  HostCeilings ceilings_;
  double memory_limit_;
  std::function<bool()> stop_;
  GpuBench* gpu_;
  WallTimer timer_;
  CacheFlusher flusher_;
  struct Kept {
    std::string text;
    DeviceMemory* memory;
    std::unique_ptr<PreparedShape> shape;
    double bytes;
  };
  std::list<Kept> kept_;  ///< most recent first
};

}  // namespace mla::run
