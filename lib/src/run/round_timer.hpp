// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mla/device_bench.hpp"
#include "run/sampler.hpp"

namespace mla::run {

/// How the calls of a measurement on a device are laid out: `calls` in a round, in parts that are timed one by one.
struct RoundLayout {
  std::int64_t calls = 1;
  std::int64_t part = 1;  ///< calls in a part; the last may be shorter
  std::int64_t extra =
      0;  ///< calls a part that are made and not counted: an injected slowdown (then there is one part)
};

/// Whole rounds of the rotation through `sets` of inputs, as many as last a millisecond, so that their ends do not show; a round
/// that takes long is cut into parts, so that there are enough samples of it. `slowdown`: injected_slowdown().
[[nodiscard]] RoundLayout round_layout(std::int64_t sets, double seconds_per_call, double slowdown);

/// Replays of captured parts of a round, or their calls enqueued anew where they cannot be captured.
class RoundTimer final : public Timer {
 public:
  /// `call(i)` enqueues the i-th call of a round.
  RoundTimer(DeviceTimer& device, std::function<void(std::int64_t)> call, const RoundLayout& layout);
  [[nodiscard]] std::string_view name() const noexcept override;
  [[nodiscard]] double resolution() const noexcept override { return 0.5e-6; }  // of CUDA events
  [[nodiscard]] double measure(const std::function<void()>&, int calls) override { return replay(calls, {}); }
  /// Seconds a call, over at least `calls` of them in whole parts, which follow one another through the round.
  /// `meanwhile` as for DeviceTimer.
  [[nodiscard]] double replay(std::int64_t calls, const std::function<void()>& meanwhile);
  [[nodiscard]] std::int64_t calls_in_part() const noexcept { return parts_.front().count; }
  [[nodiscard]] const std::string& why_no_graph() const noexcept { return why_no_graph_; }

 private:
  struct Part {
    std::int64_t first, count, made;
    std::unique_ptr<CapturedWork> graph;
  };
  void enqueue(const Part& part) const;

  DeviceTimer& device_;
  std::function<void(std::int64_t)> call_;
  std::vector<Part> parts_;
  std::size_t next_ = 0;
  std::string why_no_graph_;
};

}  // namespace mla::run
