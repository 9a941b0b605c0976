// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "report/render.hpp"
#include "report/terminal.hpp"

namespace mla::report {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 1s;        // shorter work shows nothing
constexpr auto kRedrawEvery = 100ms;  // ten times a second
constexpr const char* kClearLine = "\r\x1b[K";

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 100) return fmt::format("{} s", whole);
  if (whole < 6000) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

bool can_redraw() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

}  // namespace

Progress::Progress(std::string label, std::int64_t total, bool enabled)
    : label_(std::move(label)),
      total_(total),
      enabled_(enabled && can_redraw()),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_) std::fputs(kClearLine, stderr);
}

void Progress::step(std::string_view current) {
  ++done_;
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < kPatience || now - last_ < kRedrawEvery) return;
  last_ = now;
  std::string line =
      total_ > 0 ? fmt::format("{} {}/{}", label_, done_, total_) : fmt::format("{} {}", label_, done_);
  if (total_ > 0) {
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    const auto left = static_cast<double>(std::max<std::int64_t>(0, total_ - done_));
    line += fmt::format("  {} %  ETA {}", 100 * done_ / total_,
                        duration_text(elapsed / static_cast<double>(done_) * left));
  }
  if (!current.empty()) line += fmt::format("  {}", current);
  const auto width = static_cast<std::size_t>(inspect_terminal().width);
  std::fputs((kClearLine + truncate_to(line, width > 1 ? width - 1 : 1)).c_str(), stderr);
  drawn_ = true;
}

}  // namespace mla::report
