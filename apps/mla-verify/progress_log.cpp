// SPDX-License-Identifier: Apache-2.0
#include "progress_log.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "verify/suite.hpp"

namespace mla::verify_app {
namespace {

constexpr std::chrono::seconds kEvery{10};
/// What a case costs beside its arithmetic, in operations: making inputs, memory, messages.
constexpr double kAnyCase = 1e8;

}  // namespace

ProgressLog::ProgressLog(bool enabled, std::size_t oracles, std::span<const verify::Case> cases)
    : enabled_(enabled),
      oracles_(oracles),
      cases_(cases.size()),
      start_(Clock::now()),
      cases_start_(start_),
      last_(start_) {
  if (!enabled_) return;
  for (const verify::Case& c : cases) {
    const double cost = kAnyCase + verify::work_of(c);
    cost_.insert_or_assign(to_text(c), cost);
    all_ += cost;
  }
}

void ProgressLog::step(std::string_view what) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (oracles_begun_ < oracles_) {
    ++oracles_begun_;
  } else {
    if (cases_begun_++ == 0) cases_start_ = now;
    const auto cost = cost_.find(std::string(what));
    begun_ += cost == cost_.end() ? 0.0 : cost->second;
  }
  if (now - last_ < kEvery) return;
  last_ = now;
  print(now);
}

void ProgressLog::print(Clock::time_point now) {
  const auto seconds = [now](Clock::time_point since) {
    return std::chrono::duration<double>(now - since).count();
  };
  std::string line = cases_begun_ == 0 ? fmt::format("verify: {} of {} oracles", oracles_begun_, oracles_)
                     : cases_ == 0     ? fmt::format("verify: {} cases", cases_begun_)
                                       : fmt::format("verify: {} of {} cases", cases_begun_, cases_);
  line += fmt::format(", {:.0f} s", seconds(start_));
  if (cases_begun_ > 0 && begun_ > 0)
    line += fmt::format("; about {:.0f} s left", seconds(cases_start_) * (all_ - begun_) / begun_);
  fmt::print(stderr, "{}\n", line);
}

}  // namespace mla::verify_app
