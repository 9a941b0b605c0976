// SPDX-License-Identifier: Apache-2.0
#include "run/round_timer.hpp"

#include <algorithm>
#include <cmath>

#include "mla/error.hpp"

namespace mla::run {
namespace {

constexpr double kRoundSeconds = 1e-3;
constexpr double kLongRoundSeconds = 0.02;
constexpr std::int64_t kMostCalls = 4096;  // captured in one graph

}  // namespace

RoundLayout round_layout(std::int64_t sets, double seconds_per_call, double slowdown) {
  const auto rounds =
      static_cast<std::int64_t>(std::ceil(kRoundSeconds / (seconds_per_call * static_cast<double>(sets))));
  RoundLayout layout;
  layout.calls = sets * std::clamp<std::int64_t>(rounds, 1, std::max<std::int64_t>(1, kMostCalls / sets));
  if (slowdown > 0) {  // long enough for at least one call too many
    while (static_cast<double>(layout.calls) * slowdown < 1) layout.calls += sets;
    layout.extra = std::llround(static_cast<double>(layout.calls) * slowdown);
  }
  layout.part = layout.calls;
  if (slowdown == 0 && static_cast<double>(layout.calls) * seconds_per_call > kLongRoundSeconds)
    layout.part =
        std::clamp<std::int64_t>(std::llround(std::ceil(kRoundSeconds / seconds_per_call)), 1, layout.calls);
  return layout;
}

RoundTimer::RoundTimer(DeviceTimer& device, std::function<void(std::int64_t)> call, const RoundLayout& layout)
    : device_(device), call_(std::move(call)) {
  for (std::int64_t at = 0; at < layout.calls; at += layout.part) {
    const std::int64_t count = std::min(layout.part, layout.calls - at);
    parts_.push_back({at, count, count + layout.extra, nullptr});
  }
  try {
    for (Part& part : parts_) part.graph = device.capture([&] { enqueue(part); });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    for (Part& part : parts_) part.graph.reset();
    why_no_graph_ = error.what();
  }
}

std::string_view RoundTimer::name() const noexcept {
  return parts_.front().graph ? "graph" : "event";
}

double RoundTimer::replay(std::int64_t calls, const std::function<void()>& meanwhile) {
  double seconds = 0;
  std::int64_t made = 0;
  do {
    Part& part = parts_[next_++ % parts_.size()];
    const std::int64_t wanted = parts_.size() > 1 ? 1 : (calls + part.count - 1) / part.count;
    const int times = static_cast<int>(std::max<std::int64_t>(1, wanted));
    const auto anew = [&] {
      for (int i = 0; i < times; ++i) enqueue(part);
    };
    seconds += part.graph ? device_.seconds(*part.graph, times, meanwhile) : device_.seconds(anew, meanwhile);
    made += times * part.count;
  } while (made < calls);
  return seconds / static_cast<double>(made);
}

void RoundTimer::enqueue(const Part& part) const {
  for (std::int64_t i = 0; i < part.made; ++i) call_(part.first + i);
}

}  // namespace mla::run
