// SPDX-License-Identifier: Apache-2.0
#include "report/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace mla::report {
namespace {

constexpr int kDefaultWidth = 80;

int terminal_width() noexcept {
  winsize size{};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr) {
    int width = 0;
    const char* end = columns + std::strlen(columns);
    if (std::from_chars(columns, end, width).ptr == end && width > 0) return width;
  }
  return kDefaultWidth;
}

}  // namespace

Terminal inspect_terminal(ColorMode mode) {
  Terminal terminal;
  terminal.stdout_is_tty = isatty(STDOUT_FILENO) == 1;
  terminal.stderr_is_tty = isatty(STDERR_FILENO) == 1;
  terminal.width = terminal_width();
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  const bool wanted = terminal.stdout_is_tty && !dumb && (no_color == nullptr || *no_color == '\0');
  terminal.color = mode == ColorMode::kAlways || (mode == ColorMode::kAuto && wanted);
  return terminal;
}

}  // namespace mla::report
