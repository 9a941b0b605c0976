// SPDX-License-Identifier: Apache-2.0
#include "run/environment.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "mla/version.hpp"
#include "run/sampler.hpp"

namespace mla::run {
namespace {

using report::Cell;

/// Inside a container the limits are not those of the machine.
bool in_container() {
  return std::filesystem::exists("/.dockerenv") || std::filesystem::exists("/run/.containerenv") ||
         std::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
}

}  // namespace

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

report::Environment capture_environment(const std::string& command, int threads,
                                        const HostCeilings& ceilings) {
  const BuildInfo& build = build_info();
  report::Environment environment;
  environment.id = fmt::format("{}-{}", utc_now(), getpid());
  const auto fact = [&](const char* key, Cell value) {
    environment.facts.emplace_back(key, std::move(value));
  };
  fact("command", command);
  fact("version", std::string(build.version));
  fact("git", std::string(build.git));
  fact("compiler", std::string(build.compiler));
  fact("build_type", std::string(build.build_type));
  fact("cuda", std::string(build.cuda));
  fact("cpu", cpu_model());
  fact("hardware_threads", std::int64_t{threads});
  fact("last_level_cache_bytes", static_cast<std::int64_t>(last_level_cache_bytes()));
  if (const std::string governor = cpu_governor(); !governor.empty()) fact("governor", governor);
  if (const std::optional<double> load = load_average()) fact("load_1min", *load);
  fact("container", in_container());
  fact("wall_timer_resolution_ns", WallTimer().resolution() * 1e9);
  fact("host_read_gbps", ceilings.read_bytes_per_s / 1e9);
  fact("host_f32_gflops", ceilings.f32_flops / 1e9);
  fact("host_f64_gflops", ceilings.f64_flops / 1e9);
  // Not the folder itself: a published record names no place on somebody's machine.
  if (std::getenv("MLA_CONFIG_DIR") != nullptr) fact("MLA_CONFIG_DIR_set", true);
  return environment;
}

std::string ceilings_text(const report::Environment& environment) {
  const auto word = [&](std::string_view key) {
    const auto found = std::ranges::find(environment.facts, key, &std::pair<std::string, Cell>::first);
    const auto* text = found == environment.facts.end() ? nullptr : std::get_if<std::string>(&found->second);
    return text == nullptr ? std::string() : *text;
  };
  const auto number = [&](std::string_view key) {
    const auto found = std::ranges::find(environment.facts, key, &std::pair<std::string, Cell>::first);
    const auto* real = found == environment.facts.end() ? nullptr : std::get_if<double>(&found->second);
    return real == nullptr ? 0.0 : *real;
  };
  if (const std::string gpu = word("gpu"); !gpu.empty()) {
    const std::string nvml = word("nvml");
    return fmt::format(
        "ceilings of {} measured in this run: {:.0f} GB/s read, {:.0f} GB/s copy, {:.0f} TFLOP/s bf16 ({}), "
        "{:.0f} TFLOP/s f32; a launch takes {:.2f} us in a graph of many, {:.2f} us as a graph, {:.2f} us "
        "alone{}{}",
        gpu, number("gpu_read_gbps"), number("gpu_copy_gbps"), number("gpu_bf16_gflops") / 1e3,
        word("gpu_bf16_method"), number("gpu_f32_gflops") / 1e3, number("gpu_kernel_us"),
        number("gpu_graph_us"), number("gpu_call_us"), nvml.empty() ? "" : "; ", nvml);
  }
  return fmt::format(
      "ceilings measured in this run: {:.1f} GB/s of memory reads, {:.0f} GFLOP/s f32, {:.0f} GFLOP/s f64",
      number("host_read_gbps"), number("host_f32_gflops"), number("host_f64_gflops"));
}

std::vector<std::string> build_flags() {
  std::vector<std::string> flags;
#ifndef NDEBUG
  flags.emplace_back("debug-build");
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  flags.emplace_back("sanitized");
#endif
  return flags;
}

std::vector<std::string> host_flags(int threads) {
  std::vector<std::string> flags = build_flags();
  // Half of the processors taken by others before we start is enough to spoil a measurement with all threads.
  if (const std::optional<double> load = load_average(); load && *load > threads / 2.0)
    flags.emplace_back("busy");
  return flags;
}

}  // namespace mla::run
