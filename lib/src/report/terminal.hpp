// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace mla::report {

/// What stdout and stderr are: a terminal or a pipe, how large, may it be coloured (NO_COLOR, TERM=dumb).
struct Terminal {
  bool stdout_is_tty = false;
  bool stderr_is_tty = false;
  int width = 80;
  int height = 24;
  bool color = false;
};
enum class ColorMode : std::uint8_t { kAuto, kAlways, kNever };
[[nodiscard]] Terminal inspect_terminal(ColorMode mode = ColorMode::kAuto);

/// A progress line on stderr ("verify 120/480  25 %  ETA 12 s  case text"), redrawn at most ten times a
/// second, shown only on a terminal and only once the work has taken a second; on a pipe nothing is written.
/// Cleared by the destructor.
class Progress {
 public:
  Progress(std::string label, std::int64_t total, bool enabled);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::string_view current = {});

 private:
  std::string label_;
  std::int64_t total_, done_ = 0;
  bool enabled_, drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace mla::report
