// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>

#include "mla/device_bench.hpp"
#include "mla/memory.hpp"
#include "report/record.hpp"
#include "run/backends.hpp"
#include "run/device_call.hpp"
#include "run/device_inputs.hpp"
#include "run/nvml.hpp"
#include "run/sampler.hpp"
#include "spec/sweep.hpp"

namespace mla::run {

/// MLA_BENCH_INJECT_SLOWDOWN="5%": the share of calls on a GPU that is made and not counted, so that a comparison
/// can be tried on a slowdown of known size; its rows are flagged "slowed". 0 if it is not set.
[[nodiscard]] double injected_slowdown();

/// A real GPU that points are measured on: its ceilings are measured when it is made (about two seconds).
class GpuBench {
 public:
  /// Throws kDevice if it is no GPU of this machine.
  explicit GpuBench(const Device& device);
  ~GpuBench();
  GpuBench(const GpuBench&) = delete;
  GpuBench& operator=(const GpuBench&) = delete;

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const DeviceCeilings& ceilings() const noexcept { return ceilings_; }
  [[nodiscard]] const Card& card() const noexcept { return card_; }
  /// Facts for the environment of the records.
  void add_facts(report::Environment& environment) const;

  /// From here on inputs lie elsewhere in memory than in other repetitions: times depend on it.
  void begin_repetition(int repetition, std::uint64_t seed);

  /// Verifies a point of a device backend and, if it is right, times it: graph replays over rotating inputs.
  /// Fills `record`; throws kUnsupported where the backend refuses.
  void measure(const Backend& backend, const spec::SweepPoint& point, const spec::Measure& measure,
               const std::function<bool()>& stop, report::BenchRecord& record);

  /// The same for a kernel in another process that computes on this GPU: it gets the inputs through files and
  /// times itself.
  void measure_peer(const peer::PeerBackend& backend, const spec::SweepPoint& point,
                    const spec::Measure& measure, report::BenchRecord& record);

 private:
  struct Prepared;
  struct Kept {
    std::string text;
    std::unique_ptr<Prepared> prepared;
  };
  [[nodiscard]] Prepared& prepare(const spec::SweepPoint& point, const spec::Measure& measure);
  void add_gpu_floor(const AttentionShape& shape, report::BenchRecord& record) const;
  void verify(const Backend& backend, const DeviceCall& call, Prepared& prepared,
              std::span<std::byte> workspace, const spec::Measure& measure, report::BenchRecord& record);
  void time(const DeviceCall& call, Prepared& prepared, std::span<std::byte> workspace,
            const spec::Measure& measure, const std::function<bool()>& stop, report::BenchRecord& record);

  Device device_;
  DeviceMemory& memory_;
  std::unique_ptr<DeviceTimer> timer_;
  DeviceCeilings ceilings_;
  Card card_;
  double budget_;    ///< device bytes that inputs may take
  double slowdown_;  ///< injected_slowdown()
  int repetition_ = -1;
  verify::Buffer spacer_;  ///< moves what is allocated behind it
  std::string broken_;
  std::list<Kept> kept_;  ///< most recent first
};

}  // namespace mla::run
