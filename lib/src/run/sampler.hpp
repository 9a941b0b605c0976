// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "run/stats.hpp"

/// One adaptive measurement: repeat until the median is known well enough or the time is spent.
namespace mla::run {

/// How a call is timed. A clock for work on this thread; a device's room brings one that uses its own events.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  virtual ~Timer();
  /// "wall", "event", "graph": stored in every record.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Seconds for one call, from `calls` calls back to back.
  [[nodiscard]] virtual double measure(const std::function<void()>& call, int calls) = 0;
  /// Seconds the timer cannot tell apart.
  [[nodiscard]] virtual double resolution() const noexcept = 0;
};

/// std::chrono::steady_clock; its resolution is measured when it is made.
class WallTimer final : public Timer {
 public:
  WallTimer();
  [[nodiscard]] std::string_view name() const noexcept override { return "wall"; }
  [[nodiscard]] double measure(const std::function<void()>& call, int calls) override;
  [[nodiscard]] double resolution() const noexcept override { return resolution_; }

 private:
  double resolution_;
};

/// When to stop. A measurement ends as soon as all minima are met and the noise is below the target, or any
/// maximum is.
struct StopRule {
  double noise = 0.01;  ///< half width of the median's 95 % interval, relative
  int min_samples = 7;  ///< from six on the interval is a real one
  int max_samples = 200;
  double min_time = 0.05;  ///< seconds of timed work
  double max_time = 2.0;   ///< seconds in all, warm-up and cache flushes included; one sample is always taken
};

struct Samples {
  std::vector<double> seconds;  ///< one call each, in the order taken
  Summary summary;
  int calls_per_sample = 1;
  bool converged = false;    ///< the noise target was reached
  bool interrupted = false;  ///< `stop` said so; the samples so far are kept
};

/// `call` is what is timed, `prepare` (may be empty) runs untimed before every sample (flushes caches,
/// rotates buffers), in which case a sample is a single call. `stop` (may be empty) is asked between samples.
[[nodiscard]] Samples sample(Timer& timer, const StopRule& rule, const std::function<void()>& call,
                             const std::function<void()>& prepare, const std::function<bool()>& stop);

}  // namespace mla::run
