// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <fstream>

#include "core/text.hpp"
#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "mla/plugin_host.hpp"
#include "run/environment.hpp"
#include "run/threads.hpp"
#include "spec/values.hpp"

namespace mla::bench {
namespace {

namespace fs = std::filesystem;
constexpr double kAssumedMemory = 0x1p32;

/// Memory that can be had without swapping, as the kernel tells.
double available_memory() {
  std::ifstream stream("/proc/meminfo");
  for (std::string word; stream >> word;) {
    double kib = 0;
    if (word == "MemAvailable:" && stream >> kib) return kib * 1024;
  }
  return kAssumedMemory;
}

fs::path default_folder(const std::string& device, const std::string& name) {
  return run::unused_folder(fs::path("results") / device /
                            fmt::format("{}-{}", run::utc_now().substr(0, 10), name));
}

}  // namespace

std::optional<Device> find_gpu(const std::string& ordinal) {
  if (ordinal == "none") return std::nullopt;
  const RealDevices found = real_devices();
  if (ordinal.empty()) {
    if (found.devices.empty()) return std::nullopt;
    return found.devices.front();
  }
  for (const Device& device : found.devices) {
    if (std::to_string(device.ordinal) == ordinal) return device;
  }
  if (ordinal.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--gpu is {}, but must be the number of a GPU of this machine, or none",
                            text::quoted(ordinal)),
                "--device models a GPU that is not here");
  }
  if (found.devices.empty()) throw Error(ErrorCode::kDevice, found.why_none);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("there is no GPU {}; this machine has 0..{}", text::quoted(ordinal),
                          found.devices.size() - 1),
              "--gpu none keeps to the CPU; --device models a GPU that is not here");
}

std::string device_slug(const std::optional<Device>& gpu) {
  if (!gpu) return "host";
  std::string slug = text::to_lower(gpu->name);
  if (slug.starts_with("nvidia ")) slug.erase(0, 7);
  for (char& c : slug) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  }
  return slug;
}

std::vector<std::string> backends_here(const std::optional<Device>& gpu) {
  std::vector<std::string> names;
  for (const Backend* backend : backends()) {
    const bool from_outside = !origin_of(*backend).empty();
    if (from_outside || backend->info().on_device == gpu.has_value())
      names.emplace_back(backend->info().name);
  }
  return names;
}

double memory_limit(const std::string& text) {
  return text.empty() ? available_memory() / 2
                      : static_cast<double>(spec::parse_size(text, "--memory-limit"));
}

Keeper::Keeper(const std::string& out, bool resume, const spec::SweepSpec& spec, const std::string& device) {
  if (out == "none") return;
  const fs::path folder = out.empty() ? default_folder(device, spec.name) : fs::path(out);
  store_ = std::make_unique<run::RecordStore>(folder / "run.jsonl", resume);
  if (!resume) run::RecordStore(folder / "spec.json", false).append(spec::print_spec(spec));
}

void Keeper::keep(const report::Environment& environment) {
  if (store_) store_->append(report::to_json_line(environment));
}

void Keeper::keep(const report::BenchRecord& record) {
  if (store_) store_->append(report::to_json_line(record));
}

std::string Keeper::folder() const {
  return store_ ? store_->path().parent_path().string() : std::string();
}

Session::Session(const std::string& command_line, const cli::Output& output, const std::optional<Device>& gpu)
    : output_(output) {
  cli::install_interrupt_handler();
  const int threads = run::hardware_threads();
  ceilings_ = run::measure_ceilings(threads);
  environment_ = run::capture_environment(command_line, threads, ceilings_);
  if (!gpu) return;
  gpu_ = std::make_unique<run::GpuBench>(*gpu);
  gpu_->add_facts(environment_);
}

run::SweepOutcome Session::measure(const spec::Sweep& sweep, run::SweepOptions options,
                                   Keeper* keeper) const {
  options.env = environment_.id;
  options.gpu = gpu_.get();
  const auto total = static_cast<std::int64_t>(run::count_points(sweep, options));
  report::Progress progress("bench", total, !output_.quiet);
  return run::run_sweep(sweep, ceilings_, options,
                        {.stop = cli::interrupted,
                         .on_start = [&](std::string_view name) { progress.step(name); },
                         .on_record =
                             [&](const report::BenchRecord& record) {
                               if (keeper != nullptr) keeper->keep(record);
                             }});
}

int exit_code(const run::SweepOutcome& outcome) {
  if (outcome.interrupted) return cli::kInterrupted;
  bool any_ok = false;
  bool any_unsupported = false;
  for (const report::BenchRecord& record : outcome.records) {
    if (record.status == "wrong" || record.status == "error") return cli::kCheckFailed;
    any_ok = any_ok || record.status == "ok";
    any_unsupported = any_unsupported || record.status == "unsupported";
  }
  return any_unsupported && !any_ok ? cli::kMachine : cli::kOk;
}

double parse_threshold(const std::string& text) {
  return spec::parse_percent(text, "--threshold");
}

}  // namespace mla::bench
