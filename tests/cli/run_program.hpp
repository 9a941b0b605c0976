// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Runs one of our programs as a user would and keeps everything it said.
namespace mla::test {

struct RunResult {
  int exit_code = -1;  ///< 128 + signal if it died of one
  std::string out, err;
};

struct RunOptions {
  std::string stdin_text{};
  std::map<std::string, std::string>
      env{};                          ///< added to the test's own; MLA_*, NO_COLOR and TERM are dropped first
  std::string stdout_path{};          ///< send stdout there ("/dev/full") instead of keeping it
  std::string directory{};            ///< working folder
  std::chrono::seconds timeout{120};  ///< then SIGKILL; the result's exit code is 137
  std::function<bool(pid_t)>
      on_tick{};  ///< called about every 10 ms until it returns false; may send signals
};

namespace detail {

inline std::vector<std::string> environment(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> list;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (name.starts_with("MLA_") || name == "NO_COLOR" || name == "TERM" || extra.contains(name)) continue;
    list.emplace_back(text);
  }
  for (const auto& [name, value] : extra) list.push_back(name + '=' + value);
  return list;
}

inline std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

inline std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
  return ends;
}

inline void close_once(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

/// Reads what is there; closes at the end of the stream.
inline void drain(int& fd, std::string& into) {
  std::array<char, 65536> buffer{};
  const ssize_t n = read(fd, buffer.data(), buffer.size());
  if (n > 0) {
    into.append(buffer.data(), static_cast<std::size_t>(n));
  } else if (n == 0 || errno != EINTR) {
    close_once(fd);
  }
}

inline void feed(int& fd, std::string_view& left) {
  const ssize_t n = left.empty() ? 0 : write(fd, left.data(), left.size());
  if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
  if (left.empty() || (n < 0 && errno != EINTR && errno != EAGAIN)) close_once(fd);
}

[[noreturn]] inline void become(const std::string& program, std::vector<char*>& argv,
                                std::vector<char*>& envp, const RunOptions& options, int in, int out,
                                int err) {
  if (!options.stdout_path.empty()) out = open(options.stdout_path.c_str(), O_WRONLY | O_CREAT, 0644);
  const bool ready = (options.directory.empty() || chdir(options.directory.c_str()) == 0) &&
                     dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2;
  std::signal(SIGPIPE, SIG_DFL);
  if (ready) execve(program.c_str(), argv.data(), envp.data());
  _exit(127);
}

}  // namespace detail

/// `program` is a path, usually a compile definition of the test made with $<TARGET_FILE:...>.
inline RunResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                             const RunOptions& options = {}) {
  using detail::close_once;
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = detail::environment(options.env);
  std::vector<char*> argv = detail::pointers(words);
  std::vector<char*> envp = detail::pointers(variables);
  std::array<int, 2> in = detail::make_pipe();
  std::array<int, 2> out = detail::make_pipe();
  std::array<int, 2> err = detail::make_pipe();

  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(std::strerror(errno));
  if (child == 0) detail::become(program, argv, envp, options, in[0], out[1], err[1]);
  for (int* fd : {&in[0], &out[1], &err[1]}) close_once(*fd);
  std::signal(SIGPIPE, SIG_IGN);  // a child that reads no stdin must not end the test
  fcntl(in[1], F_SETFL, O_NONBLOCK);

  RunResult result;
  std::string_view to_feed = options.stdin_text;
  bool ticking = static_cast<bool>(options.on_tick);
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  while (out[0] >= 0 || err[0] >= 0) {
    std::array<pollfd, 3> fds{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {in[1], POLLOUT, 0}}};
    poll(fds.data(), fds.size(), 10);
    if (fds[0].revents != 0) detail::drain(out[0], result.out);
    if (fds[1].revents != 0) detail::drain(err[0], result.err);
    if (fds[2].revents != 0) detail::feed(in[1], to_feed);
    if (ticking) ticking = options.on_tick(child);
    if (std::chrono::steady_clock::now() > deadline) kill(child, SIGKILL);
  }
  close_once(in[1]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace mla::test
