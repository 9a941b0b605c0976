// SPDX-License-Identifier: Apache-2.0
#include "run/sampler.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace mla::run {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A sample must be this many times longer than what the timer can tell apart: 0.1 %.
constexpr double kResolutionsPerSample = 1000;

/// Enough back-to-back calls for a sample that the timer resolves.
int calls_for(const Timer& timer, double seconds_per_call) {
  const double wanted = timer.resolution() * kResolutionsPerSample;
  if (!(seconds_per_call > 0)) return 1000;
  return static_cast<int>(std::clamp(std::ceil(wanted / seconds_per_call), 1.0, 1e6));
}

}  // namespace

Timer::~Timer() = default;

WallTimer::WallTimer() : resolution_(std::numeric_limits<double>::infinity()) {
  // The smallest step the clock shows: what a difference of two readings cannot see.
  for (int i = 0; i < 100; ++i) {
    const auto start = Clock::now();
    auto next = Clock::now();
    while (next == start) next = Clock::now();
    resolution_ = std::min(resolution_, std::chrono::duration<double>(next - start).count());
  }
}

double WallTimer::measure(const std::function<void()>& call, int calls) {
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return seconds_since(start) / calls;
}

Samples sample(Timer& timer, const StopRule& rule, const std::function<void()>& call,
               const std::function<void()>& prepare, const std::function<bool()>& stop) {
  const auto start = Clock::now();
  Samples samples;
  if (prepare) prepare();
  const double first = timer.measure(call, 1);  // warms code, pages and predictors; not a sample
  samples.calls_per_sample = prepare ? 1 : calls_for(timer, first);
  double timed = 0;
  while (true) {
    if (prepare) prepare();
    samples.seconds.push_back(timer.measure(call, samples.calls_per_sample));
    timed += samples.seconds.back() * samples.calls_per_sample;
    const auto n = static_cast<int>(samples.seconds.size());
    samples.interrupted = stop && stop();
    const bool enough = n >= rule.min_samples && timed >= rule.min_time;
    const bool spent = n >= rule.max_samples || seconds_since(start) >= rule.max_time;
    if (!enough && !spent && !samples.interrupted) continue;
    samples.summary = summarize(samples.seconds);
    samples.converged = enough && samples.summary.noise <= rule.noise;
    if (samples.converged || spent || samples.interrupted) return samples;
  }
}

}  // namespace mla::run
