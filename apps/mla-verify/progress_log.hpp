// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "verify/case.hpp"

namespace mla::verify_app {

/// Lines on stderr for logs ("verify: 120 of 480 cases, 61 s; about 40 s left"), one every ten seconds. Cases come
/// cheapest first, so what is left is estimated from their arithmetic and not from their number.
class ProgressLog {
 public:
  ProgressLog(bool enabled, std::size_t oracles, std::span<const verify::Case> cases);
  /// `what` begins now: an oracle first, then cases by their text.
  void step(std::string_view what);

 private:
  using Clock = std::chrono::steady_clock;
  void print(Clock::time_point now);

  bool enabled_;
  std::size_t oracles_, cases_, oracles_begun_ = 0, cases_begun_ = 0;
  std::unordered_map<std::string, double> cost_;
  double all_ = 0, begun_ = 0;
  Clock::time_point start_, cases_start_, last_;
};

}  // namespace mla::verify_app
