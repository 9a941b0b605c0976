// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program.hpp"
#include "report/record.hpp"
#include "run/host.hpp"
#include "run/store.hpp"
#include "run/sweep_run.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {

/// Backends "all" stands for: those whose tensors live where this machine has memory.
[[nodiscard]] std::vector<std::string> backends_here();

/// --memory-limit, or half of what is free where it is empty.
[[nodiscard]] double memory_limit(const std::string& text);

/// Where records go while a sweep runs; nothing at all for "none".
class Keeper {
 public:
  /// `out`: a folder (made, never overwritten), "none", or empty for results/<device>/<date>-<name>. `resume` continues it.
  Keeper(const std::string& out, bool resume, const spec::SweepSpec& spec);
  void keep(const report::Environment& environment);
  void keep(const report::BenchRecord& record);
  /// The folder, or empty.
  [[nodiscard]] std::string folder() const;

 private:
  std::unique_ptr<run::RecordStore> store_;
};

/// This machine, looked at once: ceilings measured, environment captured, interrupts caught. Then any number of sweeps.
class Session {
 public:
  Session(const std::string& command_line, const cli::Output& output);
  [[nodiscard]] const report::Environment& environment() const noexcept { return environment_; }
  [[nodiscard]] const run::HostCeilings& ceilings() const noexcept { return ceilings_; }
  /// With progress; `keeper` may be null.
  [[nodiscard]] run::SweepOutcome measure(const spec::Sweep& sweep, run::SweepOptions options,
                                          Keeper* keeper) const;

 private:
  cli::Output output_;
  run::HostCeilings ceilings_;
  report::Environment environment_;
};

/// 130 interrupted, 1 something wrong, 3 nothing could be measured because nothing is supported, else 0.
[[nodiscard]] int exit_code(const run::SweepOutcome& outcome);

/// The argument of a threshold: "3%". Throws kInvalidArgument.
[[nodiscard]] double parse_threshold(const std::string& text);

}  // namespace mla::bench
