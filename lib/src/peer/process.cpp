// SPDX-License-Identifier: Apache-2.0
#include "peer/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::peer {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Deadline = std::chrono::time_point<Clock, Seconds>;

constexpr std::size_t kKeptErrors = 8192;

double left_until(Deadline deadline) {
  return Seconds(deadline - Clock::now()).count();
}

int milliseconds(double seconds) {
  return std::clamp(static_cast<int>(seconds * 1000), 1, 1000);
}

[[noreturn]] void fail_to_start(const std::string& program, int error) {
  throw Error(ErrorCode::kIo,
              fmt::format("cannot start {}: {}", text::quoted(program), std::strerror(error)));
}

/// Two connected ends that close themselves and are not inherited. A socket pair, not a pipe: writing to a
/// program that is gone can then be an error instead of a signal to us.
struct Channel {
  explicit Channel(const std::string& program) {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail_to_start(program, errno);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  int take() { return std::exchange(ends[0], -1); }
  std::array<int, 2> ends{-1, -1};
};

pid_t spawn(const std::vector<std::string>& command, int in, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
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
  if (error != 0) fail_to_start(command.front(), error);
  return child;
}

}  // namespace

Process::Process(std::vector<std::string> command) {
  Channel in(command.front()), out(command.front()), err(command.front());
  pid_ = spawn(command, in.ends[1], out.ends[1], err.ends[1]);
  in_ = in.take();
  out_ = out.take();
  err_ = err.take();
}

Process::~Process() {
  ::close(in_);
  for (int tries = 0; !reaped_ && tries < 100; ++tries) {
    reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    if (!reaped_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill_group();
  if (!reaped_) {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(out_);
  ::close(err_);
}

void Process::kill_group() {
  ::kill(-pid_, SIGKILL);  // also what it started itself; nothing happens if all are gone
}

void Process::drain_errors() {
  std::array<char, 4096> chunk{};
  const ssize_t n = ::recv(err_, chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n > 0) {
    errors_.append(chunk.data(), static_cast<std::size_t>(n));
    if (errors_.size() > kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
  } else if (n == 0) {
    errors_ended_ = true;
  }
}

std::string Process::last_words() const {
  const std::size_t end = errors_.find_last_not_of("\n\r ");
  if (end == std::string::npos) return {};
  const std::size_t start = errors_.find_last_of('\n', end);
  return errors_.substr(start == std::string::npos ? 0 : start + 1,
                        end - (start == std::string::npos ? 0 : start + 1) + 1);
}

std::string Process::how_it_ended() {
  // Its streams are closed; an end that comes with them is a matter of moments.
  for (int tries = 0; !reaped_ && tries < 100; ++tries) {
    reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    if (!reaped_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int i = 0; i < 16; ++i) drain_errors();
  std::string how = "closed its stdout";
  if (reaped_ && WIFSIGNALED(status_)) {
    how = fmt::format("died of signal {} ({})", WTERMSIG(status_), ::strsignal(WTERMSIG(status_)));
  } else if (reaped_) {
    how = fmt::format("ended with exit code {}", WEXITSTATUS(status_));
  }
  const std::string words = last_words();
  return words.empty() ? how : fmt::format("{}: {}", how, words);
}

Process::Outcome Process::give_up(Outcome why) {
  kill_group();
  return why;
}

Process::Outcome Process::try_write(std::string_view line, double timeout) {
  const auto deadline = Clock::now() + Seconds(timeout);
  std::string text(line);
  text += '\n';
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t n = ::send(in_, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Outcome::kEnded;
    } else if (left_until(deadline) <= 0) {
      return give_up(Outcome::kSilent);
    } else {
      pollfd polled{in_, POLLOUT, 0};
      ::poll(&polled, 1, milliseconds(left_until(deadline)));
      drain_errors();
    }
  }
  return Outcome::kDone;
}

bool Process::fill() {
  std::array<char, 1 << 14> chunk{};
  const ssize_t n = ::recv(out_, chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n > 0) buffer_.append(chunk.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

Process::Outcome Process::try_read(std::string& line, double timeout) {
  const auto deadline = Clock::now() + Seconds(timeout);
  std::size_t seen = 0;
  while (true) {
    const std::size_t end = buffer_.find('\n', seen);
    if (end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return Outcome::kDone;
    }
    seen = buffer_.size();
    if (seen > kMaxLine) return give_up(Outcome::kEndless);
    const double left = left_until(deadline);
    if (left <= 0) return give_up(Outcome::kSilent);
    std::array<pollfd, 2> polled{{{out_, POLLIN, 0}, {errors_ended_ ? -1 : err_, POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), milliseconds(left));
    if (polled[1].revents != 0) drain_errors();
    if (polled[0].revents != 0 && !fill()) return Outcome::kEnded;
  }
}

void Process::require(Outcome outcome, double timeout) {
  const std::string words = last_words();
  switch (outcome) {
    case Outcome::kDone:
      return;
    case Outcome::kEnded:
      throw Error(ErrorCode::kIo, how_it_ended());
    case Outcome::kSilent:
      throw Error(ErrorCode::kIo, fmt::format("gave no answer within {:g} s{}{}", timeout,
                                              words.empty() ? "" : "; its last words: ", words));
    case Outcome::kEndless:
      throw Error(ErrorCode::kIo, fmt::format("wrote {} bytes without the end of a line", buffer_.size()));
  }
}

void Process::write_line(std::string_view line, double timeout) {
  require(try_write(line, timeout), timeout);
}

std::string Process::read_line(double timeout) {
  std::string line;
  require(try_read(line, timeout), timeout);
  return line;
}

}  // namespace mla::peer
