// SPDX-License-Identifier: Apache-2.0
#include "verify/worker_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

#include "mla/error.hpp"

extern char** environ;

namespace mla::verify {
namespace {

using Clock = std::chrono::steady_clock;
using Ends = std::array<int, 2>;

constexpr std::size_t kKeptErrors = 8192;

[[noreturn]] void fail(const std::string& program, int error) {
  throw Error(ErrorCode::kIo, fmt::format("cannot start {}: {}", program, std::strerror(error)));
}

/// Sockets, not pipes: to write to a program that is gone is an error then, not a signal.
struct Channel {
  explicit Channel(const std::string& program) {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail(program, errno);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  int take_ours() { return std::exchange(ends[0], -1); }
  Ends ends{-1, -1};
};

pid_t spawn(const std::vector<std::string>& command, const Ends& theirs, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) fail(command.front(), error);
  return child;
}

/// Adds what can be read; false at the stream's end.
bool receive(int fd, std::string& into) {
  std::array<char, 1 << 14> chunk{};
  const ssize_t n = ::recv(fd, chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n > 0) into.append(chunk.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace

std::string own_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    throw Error(ErrorCode::kIo, fmt::format("cannot find this program's own path: {}", error.message()));
  return path.string();
}

WorkerProcess::WorkerProcess(const std::vector<std::string>& command) {
  Channel in(command.front()), out(command.front()), err(command.front());
  pid_ = spawn(command, {in.ends[1], out.ends[1]}, err.ends[1]);
  in_ = in.take_ours();
  out_ = out.take_ours();
  err_ = err.take_ours();
}

WorkerProcess::~WorkerProcess() {
  ::kill(-pid_, SIGKILL);
  while (!reaped_ && ::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  for (const int fd : {in_, out_, err_}) ::close(fd);
}

bool WorkerProcess::write_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t n = ::send(in_, left.data(), left.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool WorkerProcess::take_line(std::string& line) {
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos) return false;
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return true;
}

WorkerProcess::Read WorkerProcess::read_line(std::string& line, double timeout) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout);
  while (true) {
    if (take_line(line)) return Read::kLine;
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (left <= 0) return Read::kSilent;
    std::array<pollfd, 2> polled{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), std::clamp(static_cast<int>(left * 1000), 1, 1000));
    receive(err_, errors_);
    if (errors_.size() > kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
    if (!receive(out_, buffer_)) return take_line(line) ? Read::kLine : Read::kEnded;
  }
}

std::string WorkerProcess::how_it_ended() {
  // Its output is closed; if it lives on in spite of that, it is of no use.
  for (int tries = 0; !reaped_ && tries < 100; ++tries) {
    reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    if (!reaped_) ::usleep(10'000);
  }
  receive(err_, errors_);
  std::string how = "it closed its output";
  if (reaped_ && WIFSIGNALED(status_))
    how = fmt::format("it died of signal {} ({})", WTERMSIG(status_), ::strsignal(WTERMSIG(status_)));
  if (reaped_ && WIFEXITED(status_)) how = fmt::format("it ended with exit code {}", WEXITSTATUS(status_));
  const std::size_t end = errors_.find_last_not_of("\n\r ");
  if (end == std::string::npos) return how;
  const std::size_t start = errors_.find_last_of('\n', end) + 1;  // npos + 1 is 0
  return fmt::format("{}: {}", how, errors_.substr(start, end - start + 1));
}

}  // namespace mla::verify
