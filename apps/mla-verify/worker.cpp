// SPDX-License-Identifier: Apache-2.0
#include "worker.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "commands.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "mla/plugin_host.hpp"
#include "verify/run_suite.hpp"
#include "verify/threads.hpp"

namespace mla::verify_app {
namespace {

/// Path of the running program.
std::string own_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw Error(ErrorCode::kIo, fmt::format("cannot find this program's own path: {}", error.message()));
  }
  return path.string();
}

/// Whoever asks may be killed while a case is being computed, or before this one has begun; nobody would read the
/// answer.
void end_with(pid_t parent) {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::thread([parent] {
    while (::getppid() == parent) std::this_thread::sleep_for(std::chrono::seconds(1));
    ::_exit(cli::kMachine);
  }).detach();
}

}  // namespace

std::string participant_names(const std::string& backends, const std::vector<std::string>& peers) {
  std::string names = peers.empty() || backends != "all" ? backends : "";
  for (const std::string& peer : peers) names += fmt::format("{}peer:{}", names.empty() ? "" : ",", peer);
  return names;
}

void load_plugins(const std::vector<std::string>& files) {
  for (const std::string& file : files) static_cast<void>(load_plugin(file));
}

std::unique_ptr<verify::Judge> make_isolated_judge(const std::string& backends,
                                                   const std::vector<std::string>& plugins, double timeout,
                                                   int threads) {
  verify::IsolatedJudge::Options options;
  options.timeout = timeout;
  options.command = {own_program()};
  const std::vector<std::filesystem::path> configs = config_dirs();
  if (!configs.empty())
    options.command.insert(options.command.end(), {"--config-dir", configs.front().string()});
  options.command.insert(options.command.end(), {"worker", "--backends", backends});
  for (const std::string& file : plugins) options.command.insert(options.command.end(), {"--plugin", file});
  options.command.insert(options.command.end(),
                         {"--threads", std::to_string(threads), "--parent", std::to_string(::getpid())});
  return std::make_unique<verify::IsolatedJudge>(std::move(options));
}

int serve(const WorkerRequest& request) {
  end_with(request.parent);
  verify::limit_threads(request.threads);
  load_plugins(request.plugins);
  verify::serve_judge(verify::choose_participants(request.backends));
  return cli::kOk;
}

}  // namespace mla::verify_app
