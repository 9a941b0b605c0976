// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "commands.hpp"
#include "core/text.hpp"
#include "crossover.hpp"
#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "report/explain.hpp"
#include "report/findings.hpp"
#include "run/backends.hpp"
#include "run/modelled.hpp"
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
          const std::string& ceilings, const std::string& folder) {
  sort_by_axes(records, sweep);
  report::Document document;
  document.kind = "bench.run";
  if (!sweep.question.empty()) document.headline.push_back(sweep.question);
  document.headline.push_back(report::tally(records));
  const bool for_people =
      request.output.format == report::Format::kTable || request.output.format == report::Format::kMarkdown;
  document.tables.push_back(report::record_table(records, !for_people));
  if (request.explain) document.tables.push_back(report::explained_table(records));
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
  const spec::Sweep sweep = spec::resolve(spec, run::modelled_backends());
  std::vector<BenchRecord> records;
  for (const spec::SweepPoint& point : sweep.points)
    records.push_back(run::model_point(point, device, sweep.name));
  Keeper keeper(request.out.empty() || request.dry_run ? "none" : request.out, false, spec, device.name);
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

}  // namespace

int answer(const RunRequest& request) {
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
  if (request.dry_run) return dry_run(sweep, options.memory_limit, gpu, request.output);

  std::vector<BenchRecord> records = earlier_records(request, options);
  const std::size_t total = run::count_points(sweep, options);
  if (total == 0 && records.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no point of the sweep matches the filter {}", text::quoted(request.filter)),
                "--dry-run shows the points");
  }
  // Before the machine is looked at: a bad folder is told at once.
  Keeper keeper(request.out, request.resume, spec, device_slug(gpu));
  const Session session(request.command_line, request.output, gpu);
  keeper.keep(session.environment());
  const run::SweepOutcome outcome = session.measure(sweep, options, &keeper);
  records.insert(records.end(), outcome.records.begin(), outcome.records.end());
  show(request, sweep, std::move(records), session.ceilings_text(), keeper.folder());
  if (outcome.interrupted) {
    fmt::print(stderr, "mla-bench: interrupted after {} of {} points{}\n", outcome.records.size(), total,
               keeper.folder().empty()
                   ? std::string()
                   : fmt::format("; continue with: mla-bench run --resume --out {}", keeper.folder()));
  }
  return exit_code(outcome);
}

}  // namespace mla::bench
