// SPDX-License-Identifier: Apache-2.0
#include "processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "mla/error.hpp"
#include "program.hpp"

namespace mla::bench {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // how often an interrupt is looked for

/// Between fork and exec: nothing that allocates.
[[noreturn]] void become(char* const* argv, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);  // it died before we could say so
  setpgid(0, 0);  // an interrupt from the terminal comes through the parent, once
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
  execv("/proc/self/exe", argv);
  _exit(127);
}

}  // namespace

int run_process(const std::vector<std::string>& words, int process, const std::string& folder) {
  std::vector<std::string> all{"mla-bench"};
  all.insert(all.end(), words.begin(), words.end());
  for (std::string word :
       {std::string("--as-process"), fmt::format("{}", process), std::string("--of-run"), folder})
    all.push_back(std::move(word));
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(argv.data(), parent);
  int status = 0;
  bool told = false;
  while (child > 0) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) break;
    if (cli::interrupted() && !told) told = kill(child, SIGINT) == 0;
    std::this_thread::sleep_for(kLook);
  }
  if (child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
    throw Error(ErrorCode::kIo, fmt::format("cannot start process {} of the run: {}", process,
                                            child < 0 ? std::strerror(errno) : "it could not be executed"));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace mla::bench
