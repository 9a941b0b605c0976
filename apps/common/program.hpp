// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "report/table.hpp"
#include "report/terminal.hpp"

/// What the three programs share without CLI11: exit codes, the one place that turns failures into them,
/// output.
namespace mla::cli {

enum ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,  ///< mismatch, does not fit, slower
  kUsage = 2,        ///< bad flag, bad or unreadable input
  kMachine = 3,      ///< no device, no backend
  kInternal = 4,
  kInterrupted = 130,
  kReaderLeft = 141,  ///< standard output was closed by its reader ("| head"), as any tool says it
};

/// Options every subcommand has.
struct Output {
  report::Format format = report::Format::kTable;
  report::ColorMode color = report::ColorMode::kAuto;
  bool quiet = false;                  ///< no progress
  bool fold_constant_columns = false;  ///< the program's choice, not a flag
  bool repeat_answer = false;          ///< the program's choice: below what filled the screen
};

/// Runs `body`, prints an escaping mla::Error as "mla-x: error: sentence" and "hint: ..." on stderr and
/// returns the exit code that belongs to it; std::bad_alloc and other exceptions are kInternal (with the
/// version and a request to report). From here on a closed pipe is an error that can be told, not a silent
/// death by signal.
int guard(const char* program, const std::function<int()>& body);

/// "program: error: sentence" and, unless empty, "hint: ..." on stderr.
void print_error(std::string_view program, std::string_view message, std::string_view hint);

/// Prints to stdout by the user's format. A closed or full stdout is an error (exit 2), never silence.
void print(const report::Document& document, const Output& output);

/// The same care for text that is no Document (help, completion, JSON Lines).
void write_stdout(std::string_view text);

/// A file that is not there yet, whole or not at all. Throws kInvalidArgument if it exists, kIo with the system's reason if
/// it cannot be written.
void write_new_file(const std::string& path, std::string_view content);

/// The whole of stdin. Throws kIo when it cannot be read.
[[nodiscard]] std::string read_stdin();

/// True once SIGINT or SIGTERM has arrived (install_interrupt_handler was called); long loops ask it between
/// points. The second signal ends the program at once.
void install_interrupt_handler();
[[nodiscard]] bool interrupted() noexcept;

}  // namespace mla::cli
