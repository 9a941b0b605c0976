// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "report/table.hpp"
#include "report/terminal.hpp"

/// What the three programs share without CLI11: exit codes, the one place that turns failures into them, output.
namespace mla::cli {

enum ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,  ///< mismatch, does not fit, slower
  kUsage = 2,        ///< bad flag, bad or unreadable input
  kMachine = 3,      ///< no device, no backend
  kInternal = 4,
  kInterrupted = 130,
};

/// Options every subcommand has.
struct Output {
  report::Format format = report::Format::kTable;
  report::ColorMode color = report::ColorMode::kAuto;
  bool quiet = false;  ///< no progress
};

/// Runs `body`, prints an escaping mla::Error as "mla-x: error: sentence" and "hint: ..." on stderr and returns the exit
/// code that belongs to it; std::bad_alloc and other exceptions are kInternal (with the version and a request to report).
int guard(const char* program, const std::function<int()>& body);

/// Prints to stdout by the user's format. A closed or full stdout is an error (exit 2), never silence.
void print(const report::Document& document, const Output& output);

/// True once SIGINT or SIGTERM has arrived (install_interrupt_handler was called); long loops ask it between points.
void install_interrupt_handler();
[[nodiscard]] bool interrupted() noexcept;

}  // namespace mla::cli
