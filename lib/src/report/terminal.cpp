// SPDX-License-Identifier: Apache-2.0
#include "report/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace mla::report {
namespace {

/// What the terminal says, else a shell's variable, else `usual`.
int terminal_size(unsigned short winsize::*side, const char* variable, int usual) noexcept {
  winsize size{};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.*side > 0) return size.*side;
  }
  if (const char* text = std::getenv(variable); text != nullptr) {
    int value = 0;
    const char* end = text + std::strlen(text);
    if (std::from_chars(text, end, value).ptr == end && value > 0) return value;
  }
  return usual;
}

}  // namespace

Terminal inspect_terminal(ColorMode mode) {
  Terminal terminal;
  terminal.stdout_is_tty = isatty(STDOUT_FILENO) == 1;
  terminal.stderr_is_tty = isatty(STDERR_FILENO) == 1;
  terminal.width = terminal_size(&winsize::ws_col, "COLUMNS", terminal.width);
  terminal.height = terminal_size(&winsize::ws_row, "LINES", terminal.height);
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  const bool wanted = terminal.stdout_is_tty && !dumb && (no_color == nullptr || *no_color == '\0');
  terminal.color = mode == ColorMode::kAlways || (mode == ColorMode::kAuto && wanted);
  return terminal;
}

}  // namespace mla::report
