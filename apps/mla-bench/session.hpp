// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program.hpp"
#include "report/record.hpp"
#include "run/gpu_bench.hpp"
#include "run/host.hpp"
#include "run/store.hpp"
#include "run/sweep_run.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {

/// The GPU of that ordinal; "none", or no GPU and nothing asked for: nothing. Throws kDevice if it was asked
/// for and is not there.
[[nodiscard]] std::optional<Device> find_gpu(const std::string& ordinal);
/// "h200" for "NVIDIA H200": the folder of results; "host" without a GPU.
[[nodiscard]] std::string device_slug(const std::optional<Device>& gpu);
/// Backends "all" stands for: on a machine with a GPU the device backends, else those of the CPU. Plug-ins
/// always.
[[nodiscard]] std::vector<std::string> backends_here(const std::optional<Device>& gpu);

/// --memory-limit, or half of what is free where it is empty.
[[nodiscard]] double memory_limit(const std::string& text);

/// Where records go while a sweep runs; nothing at all for "none".
class Keeper {
 public:
  /// `out`: a folder (made, never overwritten), "none", or empty for results/<device>/<date>-<name>. `resume`
  /// continues it.
  Keeper(const std::string& out, bool resume, const spec::SweepSpec& spec, const std::string& device);
  void keep(const report::Environment& environment);
  void keep(const report::BenchRecord& record);
  /// The folder, or empty.
  [[nodiscard]] std::string folder() const;

 private:
  std::unique_ptr<run::RecordStore> store_;
};

/// This machine, looked at once: ceilings measured, environment captured, interrupts caught. Then any number
/// of sweeps.
class Session {
 public:
  /// With `gpu` its ceilings are measured, too.
  Session(const std::string& command_line, const cli::Output& output, const std::optional<Device>& gpu);
  [[nodiscard]] const report::Environment& environment() const noexcept { return environment_; }
  /// With progress; `keeper` may be null.
  [[nodiscard]] run::SweepOutcome measure(const spec::Sweep& sweep, run::SweepOptions options,
                                          Keeper* keeper) const;

 private:
  cli::Output output_;
  run::HostCeilings ceilings_;
  std::unique_ptr<run::GpuBench> gpu_;
  report::Environment environment_;
};

/// 130 interrupted, 1 something wrong, 3 nothing could be measured because nothing is supported, else 0.
[[nodiscard]] int exit_code(const run::SweepOutcome& outcome);

/// The argument of a threshold: "3%". Throws kInvalidArgument.
[[nodiscard]] double parse_threshold(const std::string& text);

}  // namespace mla::bench
