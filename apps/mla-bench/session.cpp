// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "mla/backend.hpp"
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

fs::path default_folder(const std::string& name) {
  return run::unused_folder(fs::path("results") / "host" /
                            fmt::format("{}-{}", run::utc_now().substr(0, 10), name));
}

}  // namespace

std::vector<std::string> backends_here() {
  std::vector<std::string> names;
  for (const Backend* backend : backends()) {
    if (!backend->info().on_device) names.emplace_back(backend->info().name);
  }
  return names;
}

double memory_limit(const std::string& text) {
  return text.empty() ? available_memory() / 2
                      : static_cast<double>(spec::parse_size(text, "--memory-limit"));
}

Keeper::Keeper(const std::string& out, bool resume, const spec::SweepSpec& spec) {
  if (out == "none") return;
  const fs::path folder = out.empty() ? default_folder(spec.name) : fs::path(out);
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

Session::Session(const std::string& command_line, const cli::Output& output) : output_(output) {
  cli::install_interrupt_handler();
  const int threads = run::hardware_threads();
  ceilings_ = run::measure_ceilings(threads);
  environment_ = run::capture_environment(command_line, threads, ceilings_);
}

run::SweepOutcome Session::measure(const spec::Sweep& sweep, run::SweepOptions options,
                                   Keeper* keeper) const {
  options.env = environment_.id;
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
