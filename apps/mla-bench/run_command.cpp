// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "commands.hpp"
#include "core/text.hpp"
#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "run/environment.hpp"
#include "run/store.hpp"
#include "run/sweep_run.hpp"
#include "run/threads.hpp"
#include "spec/values.hpp"
#include "sweep_view.hpp"
#include "view.hpp"

namespace mla::bench {
namespace {

namespace fs = std::filesystem;
using report::BenchRecord;

constexpr double kAssumedMemory = 0x1p32;

/// Backends "all" stands for: those whose tensors live where this machine has memory.
std::vector<std::string> backends_here() {
  std::vector<std::string> names;
  for (const Backend* backend : backends()) {
    if (!backend->info().on_device) names.emplace_back(backend->info().name);
  }
  return names;
}

/// A run to be continued knows its own sweep.
spec::SweepSpec start_spec(const RunRequest& request) {
  if (!request.spec.empty()) {
    return spec::load_spec(request.spec, request.spec == "-" ? cli::read_stdin() : std::string());
  }
  if (request.resume) return spec::load_spec((fs::path(request.out) / "spec.json").string());
  return spec::default_spec();
}

spec::SweepSpec effective_spec(const RunRequest& request) {
  spec::SweepSpec spec = start_spec(request);
  for (const auto& [key, text] : request.overrides) {
    std::string flag = "--" + key;
    std::ranges::replace(flag, '_', '-');
    spec::override_setting(spec, key, text, spec::Level::kFlag, flag);
  }
  spec::check_alternatives(spec);
  return spec;
}

/// Memory that can be had without swapping, as the kernel tells.
double available_memory() {
  std::ifstream stream("/proc/meminfo");
  for (std::string word; stream >> word;) {
    double kib = 0;
    if (word == "MemAvailable:" && stream >> kib) return kib * 1024;
  }
  return kAssumedMemory;
}

double memory_limit(const RunRequest& request) {
  if (request.memory_limit.empty()) return available_memory() / 2;
  return static_cast<double>(spec::parse_size(request.memory_limit, "--memory-limit"));
}

void check_output(const RunRequest& request) {
  if (request.resume && (request.out.empty() || request.out == "none")) {
    throw Error(ErrorCode::kInvalidArgument, "--resume needs --out: the folder of the run to continue");
  }
  if (!request.gbench_json.empty() && fs::exists(request.gbench_json)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} exists, and a run never overwrites", text::quoted(request.gbench_json)));
  }
}

/// Where records go while the sweep runs; nothing at all for --out none.
class Keeper {
 public:
  Keeper(const RunRequest& request, const spec::SweepSpec& spec, const report::Environment& environment) {
    if (request.out == "none") return;
    const fs::path folder =
        !request.out.empty()
            ? fs::path(request.out)
            : run::unused_folder(fs::path("results") / "host" /
                                 fmt::format("{}-{}", run::utc_now().substr(0, 10), spec.name));
    store_ = std::make_unique<run::RecordStore>(folder / "run.jsonl", request.resume);
    if (!request.resume) run::RecordStore(folder / "spec.json", false).append(spec::print_spec(spec));
    store_->append(report::to_json_line(environment));
  }
  void keep(const BenchRecord& record) {
    if (store_) store_->append(report::to_json_line(record));
  }
  /// The folder, or empty.
  [[nodiscard]] std::string folder() const {
    return store_ ? store_->path().parent_path().string() : std::string();
  }

 private:
  std::unique_ptr<run::RecordStore> store_;
};

/// Records of the run being continued; their points are not measured again.
std::vector<BenchRecord> earlier_records(const RunRequest& request, run::SweepOptions& options) {
  if (!request.resume) return {};
  report::RunFile run = report::read_run(fs::path(request.out) / "run.jsonl");
  for (const std::string& warning : run.warnings) fmt::print(stderr, "mla-bench: warning: {}\n", warning);
  std::erase_if(run.records, [](const BenchRecord& r) { return r.status == "error"; });  // worth another try
  for (const BenchRecord& record : run.records) options.done.insert(run::done_key(record));
  return std::move(run.records);
}

/// Rows in the order of the axes, whatever the order of measurement.
void sort_by_axes(std::vector<BenchRecord>& records, const spec::Sweep& sweep) {
  std::map<std::string, std::size_t> position;
  for (const spec::SweepPoint& point : sweep.points) position[run::point_name(point)] = point.position;
  std::ranges::stable_sort(records, {}, [&](const BenchRecord& record) {
    const auto found = position.find(run::name_of(record));
    return std::pair(found == position.end() ? sweep.points.size() : found->second, record.repetition);
  });
}

void show(const RunRequest& request, const spec::Sweep& sweep, std::vector<BenchRecord> records,
          const run::HostCeilings& ceilings, const std::string& folder) {
  sort_by_axes(records, sweep);
  report::Document document;
  document.kind = "bench.run";
  if (!sweep.question.empty()) document.headline.push_back(sweep.question);
  document.headline.push_back(tally(records));
  const bool for_people =
      request.output.format == report::Format::kTable || request.output.format == report::Format::kMarkdown;
  document.tables.push_back(report::record_table(records, !for_people));
  document.notes = findings(records);
  document.notes.push_back(fmt::format(
      "ceilings measured in this run: {:.1f} GB/s of memory reads, {:.0f} GFLOP/s f32, {:.0f} GFLOP/s f64",
      ceilings.read_bytes_per_s / 1e9, ceilings.f32_flops / 1e9, ceilings.f64_flops / 1e9));
  if (!folder.empty()) document.notes.push_back(fmt::format("records: {}/run.jsonl", folder));
  cli::Output output = request.output;
  output.fold_constant_columns = true;
  cli::print(document, output);
}

int exit_code(const run::SweepOutcome& outcome) {
  if (outcome.interrupted) return cli::kInterrupted;
  bool any_ok = false;
  bool any_unsupported = false;
  for (const BenchRecord& record : outcome.records) {
    if (record.status == "wrong" || record.status == "error") return cli::kCheckFailed;
    any_ok = any_ok || record.status == "ok";
    any_unsupported = any_unsupported || record.status == "unsupported";
  }
  return any_unsupported && !any_ok ? cli::kMachine : cli::kOk;
}

}  // namespace

int run(const RunRequest& request) {
  check_output(request);
  const spec::SweepSpec spec = effective_spec(request);
  if (request.print_spec) {
    cli::write_stdout(spec::print_spec(spec));
    return cli::kOk;
  }
  const spec::Sweep sweep = spec::resolve(spec, backends_here());
  for (const spec::SweepPoint& point : sweep.points)
    static_cast<void>(get_backend(point.backend));  // names a typo
  run::SweepOptions options;
  options.driver.filter = request.filter;
  options.driver.json_out = request.gbench_json;
  options.memory_limit = memory_limit(request);
  if (request.dry_run) return dry_run(sweep, options.memory_limit, request.output);

  std::vector<BenchRecord> records = earlier_records(request, options);
  const std::size_t total = run::count_points(sweep, options);
  if (total == 0 && records.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no point of the sweep matches the filter {}", text::quoted(request.filter)),
                "--dry-run shows the points");
  }
  cli::install_interrupt_handler();
  const int threads = run::hardware_threads();
  const run::HostCeilings ceilings = run::measure_ceilings(threads);
  const report::Environment environment = run::capture_environment(request.command_line, threads, ceilings);
  options.env = environment.id;
  Keeper keeper(request, spec, environment);

  run::SweepOutcome outcome;
  {
    report::Progress progress("bench", static_cast<std::int64_t>(total), !request.output.quiet);
    outcome = run::run_sweep(sweep, ceilings, options,
                             {.stop = cli::interrupted,
                              .on_start = [&](std::string_view name) { progress.step(name); },
                              .on_record = [&](const BenchRecord& record) { keeper.keep(record); }});
  }
  records.insert(records.end(), outcome.records.begin(), outcome.records.end());
  show(request, sweep, std::move(records), ceilings, keeper.folder());
  if (outcome.interrupted) {
    fmt::print(stderr, "mla-bench: interrupted after {} of {} points{}\n", outcome.records.size(), total,
               keeper.folder().empty()
                   ? std::string()
                   : fmt::format("; continue with: mla-bench run --resume --out {}", keeper.folder()));
  }
  return exit_code(outcome);
}

}  // namespace mla::bench
