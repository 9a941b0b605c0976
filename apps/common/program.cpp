// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "core/printable.hpp"
#include "mla/error.hpp"
#include "mla/version.hpp"
#include "spec/text_file.hpp"

namespace mla::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

/// Whoever read standard output wanted no more of it ("| head"): nobody is left to complain to.
struct ReaderLeft {};

extern "C" void note_interrupt(int) {
  g_interrupted = 1;
}

int exit_code_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kParse:
    case ErrorCode::kIo:
      return kUsage;
    case ErrorCode::kUnsupported:
    case ErrorCode::kDevice:
      return kMachine;
    case ErrorCode::kInternal:
      break;
  }
  return kInternal;
}

int report_fault(std::string_view program, std::string_view what) {
  const BuildInfo& build = build_info();
  print_error(
      program, fmt::format("internal error: {}", what),
      fmt::format(
          "this is a fault of the program; please report it with the command line and: {} {} ({}, {})",
          build.version, build.git, build.compiler, build.build_type));
  return kInternal;
}

}  // namespace

void print_error(std::string_view program, std::string_view message, std::string_view hint) {
  std::string lines = fmt::format("{}: error: {}\n", program, message);
  if (!hint.empty()) lines += fmt::format("hint: {}\n", hint);
  std::fputs(text::printable(lines).c_str(), stderr);
}

int guard(const char* program, const std::function<int()>& body) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is a write error, told as one
  try {
    return body();
  } catch (const ReaderLeft&) {
    return kReaderLeft;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) return report_fault(program, error.what());
    print_error(program, error.what(), error.hint());
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    return report_fault(program, "out of memory");
  } catch (const std::exception& error) {
    return report_fault(program, error.what());
  }
}

void write_stdout(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    if (errno == EPIPE) throw ReaderLeft{};
    throw Error(ErrorCode::kIo, fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

void print(const report::Document& document, const Output& output) {
  const report::Terminal terminal = report::inspect_terminal(output.color);
  write_stdout(
      report::render(document, output.format,
                     {.width = terminal.stdout_is_tty ? terminal.width : 0,
                      .color = terminal.color,
                      .fold_constant_columns = output.fold_constant_columns,
                      .height = terminal.stdout_is_tty && output.repeat_answer ? terminal.height : 0}));
}

void write_new_file(const std::string& path, std::string_view content) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EEXIST)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' exists, and nothing is overwritten", path),
                "choose another --to");
  int reason = fd < 0 ? errno : 0;
  while (reason == 0 && !content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      reason = errno;
    } else {
      content.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (fd >= 0 && close(fd) != 0 && reason == 0) reason = errno;
  if (reason == 0) return;
  if (fd >= 0) unlink(path.c_str());  // half a file would stand in the way of the next try
  throw Error(ErrorCode::kIo, fmt::format("cannot write '{}': {}", path, std::strerror(reason)));
}

std::string read_stdin() {
  std::string text;
  std::array<char, 65536> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    text.append(buffer.data(), n);
    if (text.size() > spec::kMaxTextBytes) {
      throw Error(ErrorCode::kIo,
                  fmt::format("standard input is larger than {} MiB", spec::kMaxTextBytes >> 20));
    }
  }
  if (std::ferror(stdin) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("cannot read standard input: {}", std::strerror(errno)));
  }
  return text;
}

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

bool interrupted() noexcept {
  return g_interrupted != 0;
}

}  // namespace mla::cli
