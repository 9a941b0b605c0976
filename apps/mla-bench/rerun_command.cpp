// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>

#include "commands.hpp"
#include "mla/error.hpp"
#include "mla/shape.hpp"
#include "run/backends.hpp"
#include "run_files.hpp"
#include "session.hpp"

namespace mla::bench {
namespace {

using report::BenchRecord;

spec::SweepPoint point_of(const BenchRecord& record) {
  spec::SweepPoint point;
  point.shape = parse_shape(record.key);
  point.backend = record.backend;
  point.model = record.model;
  point.options.num_splits = static_cast<std::int32_t>(record.num_splits);
  point.options.threads = static_cast<std::int32_t>(record.threads);
  spec::read_mode(record.mode, point.options);
  point.step = record.work == "step";
  point.caches = record.cache_state == "warm" ? spec::Caches::kWarm : spec::Caches::kCold;
  return point;
}

/// One sweep a seed: inputs must be those of the record. Repetitions of a point are one point.
std::map<std::int64_t, spec::Sweep> sweeps_of(const std::vector<BenchRecord>& records,
                                              const spec::Measure& measure) {
  std::map<std::int64_t, spec::Sweep> sweeps;
  std::map<std::string, bool> seen;
  for (const BenchRecord& record : records) {
    if (record.status != "ok" || record.timer == "modelled" || seen[report::identity(record)]) continue;
    seen[report::identity(record)] = true;
    spec::Sweep& sweep = sweeps[record.seed];
    sweep.name = record.spec.empty() ? "rerun" : record.spec;
    sweep.measure = measure;
    sweep.measure.seed = static_cast<std::uint64_t>(record.seed);
    sweep.points.push_back(point_of(record));
    static_cast<void>(run::backend_named(record.backend));
  }
  if (sweeps.empty()) throw Error(ErrorCode::kInvalidArgument, "there is no measured point to run again");
  return sweeps;
}

/// How to measure: the defaults, and what the user said.
spec::SweepSpec measure_spec(const RerunRequest& request) {
  spec::SweepSpec spec = spec::default_spec();
  spec.name = "rerun";
  if (!request.max_time.empty())
    spec::override_setting(spec, "max_time", request.max_time, spec::Level::kFlag, "--max-time");
  if (!request.noise.empty())
    spec::override_setting(spec, "noise", request.noise, spec::Level::kFlag, "--noise");
  return spec;
}

}  // namespace

int answer(const RerunRequest& request) {
  const double threshold = parse_threshold(request.threshold);
  static_cast<void>(verdict({}, request.fail_on));  // refuses a wrong word before an hour of measuring
  report::RunFile file = read_runs({request.path});
  if (request.row > 0) {
    if (static_cast<std::size_t>(request.row) > file.records.size()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no row {}: {} has {}", request.row,
                                                           request.path, file.records.size()));
    }
    file.records = {file.records[static_cast<std::size_t>(request.row) - 1]};
  }
  const spec::SweepSpec spec = measure_spec(request);
  const std::map<std::int64_t, spec::Sweep> sweeps = sweeps_of(file.records, spec::measure_of(spec));
  run::SweepOptions options;
  options.memory_limit = memory_limit(request.memory_limit);
  const std::optional<Device> gpu = find_gpu(request.gpu);
  Keeper keeper(request.out, false, spec, device_slug(gpu));
  const Session session(request.command_line, request.output, gpu);
  keeper.keep(session.environment());
  std::vector<BenchRecord> now;
  bool interrupted = false;
  for (const auto& [seed, sweep] : sweeps) {
    const run::SweepOutcome outcome = session.measure(sweep, options, &keeper);
    now.insert(now.end(), outcome.records.begin(), outcome.records.end());
    interrupted = interrupted || outcome.interrupted;
  }
  const report::RunChange change = report::compare_runs(file.records, now, threshold);
  report::Document document = report::compare_document(change, threshold);
  document.kind = "bench.rerun";
  cli::Output output = request.output;
  output.fold_constant_columns = true;
  cli::print(document, output);
  return interrupted ? cli::kInterrupted : verdict(change, request.fail_on);
}

}  // namespace mla::bench
