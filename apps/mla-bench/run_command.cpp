// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "commands.hpp"
#include "core/text.hpp"
#include "crossover.hpp"
#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "mla/version.hpp"
#include "processes.hpp"
#include "report/explain.hpp"
#include "report/findings.hpp"
#include "report/formulas.hpp"
#include "report/repetitions.hpp"
#include "run/backends.hpp"
#include "run/environment.hpp"
#include "run/modelled.hpp"
#include "run_files.hpp"
#include "session.hpp"
#include "sweep_view.hpp"

namespace mla::bench {
namespace {

namespace fs = std::filesystem;
using report::BenchRecord;

/// A run to be continued knows its own sweep.
spec::SweepSpec start_spec(const RunRequest& request) {
  if (!request.spec.empty()) {
    return spec::load_spec(request.spec, request.spec == "-" ? cli::read_stdin() : std::string());
  }
  if (request.resume) {
    const fs::path spec = fs::path(request.out) / "spec.json";
    if (!fs::is_regular_file(spec)) {
      throw Error(ErrorCode::kIo, fmt::format("--resume: there is no run in {}, for it has no spec.json",
                                              text::quoted(request.out)));
    }
    return spec::load_spec(spec.string());
  }
  return spec::default_spec();
}

spec::SweepSpec effective_spec(const RunRequest& request) {
  spec::SweepSpec spec = start_spec(request);
  for (const auto& [key, text] : request.overrides) {
    std::string flag = "--" + key;
    std::ranges::replace(flag, '_', '-');
    spec::override_setting(spec, key, text, spec::Level::kFlag, flag);
  }
  for (const std::string& peer : request.peers) {
    const std::string name = fmt::format("{}{}", peer::kPeerPrefix, peer);
    spec::Setting& backends = spec.settings.find("backend")->second;
    backends = {fmt::format("{},{}", backends.text, name), spec::Level::kFlag, "--peer"};
  }
  spec::check_alternatives(spec);
  return spec;
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

/// Records of the run being continued; their points are not measured again.
std::vector<BenchRecord> earlier_records(const RunRequest& request, run::SweepOptions& options) {
  if (!request.resume) return {};
  report::RunFile run = report::read_run(fs::path(request.out) / "run.jsonl");
  for (const std::string& warning : run.warnings) fmt::print(stderr, "mla-bench: warning: {}\n", warning);
  std::erase_if(run.records, [](const BenchRecord& r) { return r.status == "error"; });  // worth another try
  // What another build of the program verified would have to be verified again.
  std::set<std::string> ours;
  for (const report::Environment& environment : run.environments) {
    for (const auto& [key, value] : environment.facts) {
      if (key == "git" && value == report::Cell{std::string(build_info().git)}) ours.insert(environment.id);
    }
  }
  for (const BenchRecord& record : run.records) {
    options.done.insert(run::done_key(record));
    if (record.status == "ok" && record.verified != "no" && ours.contains(record.env))
      options.verified.insert(run::name_of(record));
  }
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

/// What is said once a run ends, also before its time.
int finish(const run::SweepOutcome& outcome, std::size_t total, const std::string& folder) {
  if (outcome.interrupted) {
    fmt::print(stderr, "mla-bench: interrupted after {} of {} points{}\n", outcome.records.size(), total,
               folder.empty() ? std::string()
                              : fmt::format("; continue with: mla-bench run --resume --out {}", folder));
  }
  return exit_code(outcome);
}

void show(const RunRequest& request, const spec::Sweep& sweep, std::vector<BenchRecord> records,
          const std::string& ceilings, const std::string& folder) {
  sort_by_axes(records, sweep);
  const bool for_people =
      request.output.format == report::Format::kTable || request.output.format == report::Format::kMarkdown;
  if (for_people) records = report::merge_repetitions(records);  // programs get each
  report::Document document;
  document.kind = "bench.run";
  if (!sweep.question.empty()) document.headline.push_back(sweep.question);
  document.headline.push_back(report::tally(records));
  document.tables.push_back(report::record_table(records, !for_people));
  if (request.explain) document.tables.push_back(report::explained_table(records));
  if (request.formulas) document.tables.push_back(report::formulas_table(records));
  document.notes = report::findings(records);
  document.notes.push_back(ceilings);
  if (!folder.empty()) document.notes.push_back(fmt::format("records: {}/run.jsonl", folder));
  cli::Output output = request.output;
  output.fold_constant_columns = true;
  cli::print(document, output);
}

/// Nothing is measured, so nothing is kept unless the user names a folder: modelled rows do not belong beside
/// measured ones.
int modelled(const RunRequest& request, const spec::SweepSpec& spec) {
  if (request.resume || !request.filter.empty() || !request.gbench_json.empty() ||
      !request.crossover.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--device models, nothing runs: no --resume, --filter, --gbench-json or --find-crossover with it");
  }
  const Device device = load_device(request.device);
  if (request.dry_run) {
    std::vector<std::string> names;  // what could run there, if it were here
    for (const Backend* backend : backends()) {
      if (backend->info().on_device) names.emplace_back(backend->info().name);
    }
    return dry_run(spec::resolve(spec, names.empty() ? run::modelled_backends() : names), 0, {{}, device},
                   request.output);
  }
  const spec::Sweep sweep = spec::resolve(spec, run::modelled_backends());
  std::vector<BenchRecord> records;
  for (const spec::SweepPoint& point : sweep.points)
    records.push_back(run::model_point(point, device, sweep.name));
  Keeper keeper(request.out.empty() ? "none" : request.out, false, spec, device.name);
  for (const BenchRecord& record : records) keeper.keep(record);
  run::SweepOutcome outcome{records, false};
  show(request, sweep, std::move(records),
       fmt::format("modelled from nominal peaks of {} ({}, checked {}); launch and latency are left out",
                   device.title, device.source, device.checked),
       keeper.folder());
  return exit_code(outcome);
}

int crossover(const RunRequest& request, const spec::SweepSpec& spec) {
  if (request.dry_run || request.resume || !request.filter.empty() || !request.gbench_json.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--find-crossover chooses its points as it goes: no --dry-run, --resume, --filter or "
                "--gbench-json with it");
  }
  run::SweepOptions options;
  options.memory_limit = memory_limit(request.memory_limit);
  check_crossover(request.crossover, spec);
  const std::optional<Device> gpu = find_gpu(request.gpu);
  Keeper keeper(request.out, false, spec, device_slug(gpu));
  const Session session(request.command_line, request.output, gpu);
  keeper.keep(session.environment());
  return find_crossover(request.crossover, spec, options, keeper, session, request.output);
}

Error no_points(const RunRequest& request) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("no point of the sweep matches the filter {}", text::quoted(request.filter)),
          "--dry-run shows the points"};
}

/// A process of a run continues its folder, and measures what that says.
RunRequest as_asked(RunRequest request) {
  if (request.process < 0) return request;
  request.resume = true;
  request.out = request.folder;
  request.spec.clear();
  request.overrides.clear();
  request.peers.clear();
  return request;
}

/// One process after another, each with a device, memory and code that it set up itself.
int in_processes(const RunRequest& request, const spec::SweepSpec& spec, const spec::Sweep& sweep,
                 run::SweepOptions options, const std::optional<Device>& gpu) {
  if (request.out == "none" || !request.gbench_json.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} processes pass on what they measure in the folder of the run: no --out none or "
                    "--gbench-json with them",
                    sweep.measure.processes),
        "--repetitions measures several times in one process");
  }
  const std::vector<BenchRecord> before = earlier_records(request, options);
  const std::set<std::string> done = options.done;
  std::vector<std::size_t> points;
  for (options.process = 0; options.process < sweep.measure.processes; ++options.process)
    points.push_back(run::count_points(sweep, options));
  const std::size_t total = std::accumulate(points.begin(), points.end(), std::size_t{0});
  if (total == 0 && before.empty()) throw no_points(request);
  const std::string folder = Keeper(request.out, request.resume, spec, device_slug(gpu)).folder();
  cli::install_interrupt_handler();
  int code = cli::kOk;
  for (int process = 0; process < sweep.measure.processes && code != cli::kInterrupted; ++process) {
    if (points[static_cast<std::size_t>(process)] == 0) continue;
    code = run_process(request.words, process, folder);
    if (code > cli::kInterrupted) {
      cli::print_error("mla-bench",
                       fmt::format("process {} of the run was ended by signal {}", process, code - 128),
                       fmt::format("continue with: mla-bench run --resume --out {}", folder));
    }
    if (code != cli::kOk && code != cli::kCheckFailed && code != cli::kMachine && code != cli::kInterrupted)
      return code;  // it has said why
  }
  report::RunFile file = read_runs({folder});
  run::SweepOutcome outcome{{}, code == cli::kInterrupted};
  for (const BenchRecord& record : file.records) {
    if (!done.contains(run::done_key(record))) outcome.records.push_back(record);
  }
  show(request, sweep, std::move(file.records),
       file.environments.empty() ? std::string() : run::ceilings_text(file.environments.back()), folder);
  return finish(outcome, total, folder);
}

}  // namespace

int answer(const RunRequest& given) {
  const RunRequest request = as_asked(given);
  check_output(request);
  const spec::SweepSpec spec = effective_spec(request);
  if (request.print_spec) {
    cli::write_stdout(spec::print_spec(spec));
    return cli::kOk;
  }
  if (!request.device.empty()) return modelled(request, spec);
  if (!request.crossover.empty()) return crossover(request, spec);
  const std::optional<Device> gpu = find_gpu(request.gpu);
  const spec::Sweep sweep = spec::resolve(spec, backends_here(gpu));
  for (const spec::SweepPoint& point : sweep.points)
    static_cast<void>(run::backend_named(point.backend));  // names a typo
  run::SweepOptions options;
  options.driver.filter = request.filter;
  options.driver.json_out = request.gbench_json;
  options.memory_limit = memory_limit(request.memory_limit);
  if (request.dry_run) return dry_run(sweep, options.memory_limit, {gpu, {}}, request.output);

  if (sweep.measure.processes > 1 && request.process < 0)
    return in_processes(request, spec, sweep, std::move(options), gpu);
  options.process = std::max(request.process, 0);
  std::vector<BenchRecord> records = earlier_records(request, options);
  const std::size_t total = run::count_points(sweep, options);
  if (total == 0 && records.empty()) throw no_points(request);
  // Before the machine is looked at: a bad folder is told at once.
  Keeper keeper(request.out, request.resume, spec, device_slug(gpu));
  const Session session(request.command_line, request.output, gpu);
  keeper.keep(session.environment());
  const run::SweepOutcome outcome = session.measure(sweep, options, &keeper);
  if (request.process >= 0) return exit_code(outcome);
  records.insert(records.end(), outcome.records.begin(), outcome.records.end());
  show(request, sweep, std::move(records), run::ceilings_text(session.environment()), keeper.folder());
  return finish(outcome, total, keeper.folder());
}

}  // namespace mla::bench
