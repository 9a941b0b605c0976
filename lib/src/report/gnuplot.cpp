// SPDX-License-Identifier: Apache-2.0
#include "report/gnuplot.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "mla/error.hpp"

namespace mla::report {
namespace {

struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorCode::kIo, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(std::size_t i) {
    if (ends[i] >= 0) close(ends[i]);
    ends[i] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

/// Reads once; closes at the end.
void drain(Pipe& pipe, std::string& into) {
  std::array<char, 65536> buffer{};
  const ssize_t n = read(pipe.ends[0], buffer.data(), buffer.size());
  if (n > 0) into.append(buffer.data(), static_cast<std::size_t>(n));
  if (n == 0 || (n < 0 && errno != EINTR)) pipe.close_end(0);
}

/// Writes the script while reading both outputs, so that neither side waits for the other for ever.
void talk(Pipe& in, Pipe& out, Pipe& err, std::string_view script, std::string& drawn,
          std::string& complaint) {
  fcntl(in.ends[1], F_SETFL, O_NONBLOCK);
  while (out.ends[0] >= 0 || err.ends[0] >= 0) {
    std::array<pollfd, 3> fds{{{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}, {in.ends[1], POLLOUT, 0}}};
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) drain(out, drawn);
    if (fds[1].revents != 0) drain(err, complaint);
    if (fds[2].revents == 0) continue;
    const ssize_t n = script.empty() ? 0 : write(in.ends[1], script.data(), script.size());
    if (n > 0) script.remove_prefix(static_cast<std::size_t>(n));
    if (script.empty() || (n < 0 && errno != EAGAIN && errno != EINTR)) in.close_end(1);
  }
}

/// Starts gnuplot; 0 if there is none.
pid_t start(Pipe& in, Pipe& out, Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.ends[1], STDERR_FILENO);
  std::array<char, 8> name{"gnuplot"};
  std::array<char*, 2> argv{name.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, name.data(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? child : 0;
}

}  // namespace

std::string run_gnuplot(const std::string& script) {
  Pipe in;
  Pipe out;
  Pipe err;
  const pid_t child = start(in, out, err);
  if (child == 0) {
    throw Error(ErrorCode::kUnsupported, "charts need gnuplot, which is not installed",
                "apt-get install gnuplot-nox; tables, CSV and Markdown need nothing");
  }
  in.close_end(0);
  out.close_end(1);
  err.close_end(1);
  std::string drawn;
  std::string complaint;
  talk(in, out, err, script, drawn, complaint);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error(ErrorCode::kInternal, fmt::format("gnuplot refused a chart: {}", complaint));
  }
  return drawn;
}

bool have_gnuplot() {
  try {
    static_cast<void>(run_gnuplot(""));
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string gnuplot_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  }
  return out + "'";
}

}  // namespace mla::report
