// SPDX-License-Identifier: Apache-2.0
#include "run/sweep_run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "run/point.hpp"

namespace mla::run {
namespace {

std::string name_text(std::string_view backend, std::string key, bool step, std::int64_t splits,
                      std::int64_t threads, std::string_view caches, std::string mode) {
  std::ranges::replace(key, ' ', '/');
  std::string name = fmt::format("{}/{}{}", backend, key, step ? "/step" : "");
  if (splits > 0) name += fmt::format("/splits{}", splits);
  if (threads > 0) name += fmt::format("/threads{}", threads);
  if (!mode.empty()) {
    std::ranges::replace(mode, ' ', '/');
    name += '/' + mode;
  }
  return fmt::format("{}/{}", name, caches);
}

std::string done_text(std::string_view name, std::int64_t repetition) {
  return fmt::format("{} #{}", name, repetition);
}

DriverOutcome outcome_of(const report::BenchRecord& record) {
  DriverOutcome outcome;
  if (record.status != "ok") {
    outcome.skipped = fmt::format("{}: {}", record.status, record.reason);
    return outcome;
  }
  outcome.seconds = *record.time_us * 1e-6;
  outcome.counters = {
      {"GB/s", *record.gbps}, {"GFLOP/s", *record.gflops}, {"samples", static_cast<double>(record.n)}};
  if (record.noise) outcome.counters.emplace_back("noise", *record.noise);
  return outcome;
}

/// What the points of one run share while the driver walks them.
class Walk {
 public:
  Walk(const spec::Sweep& sweep, const HostCeilings& ceilings, const SweepOptions& options,
       const SweepHooks& hooks)
      : sweep_(sweep),
        options_(options),
        hooks_(hooks),
        verified_(options.verified),
        runner_(
            sweep.measure, ceilings, options.memory_limit, [this] { return stopped(); }, options.gpu) {}

  DriverOutcome measure(const spec::SweepPoint& point, const std::string& name, int repetition) {
    DriverOutcome skipped;
    skipped.skipped = "interrupted";
    if (outcome.interrupted || stopped()) {
      outcome.interrupted = true;
      return skipped;
    }
    if (hooks_.on_start) hooks_.on_start(name);
    report::BenchRecord record = runner_.run(point, repetition, verified_.contains(name));
    if (std::ranges::find(record.flags, "interrupted") != record.flags.end()) {
      outcome.interrupted = true;
      return skipped;
    }
    if (record.status == "ok" && record.verified != "no") verified_.insert(name);
    record.spec = sweep_.name;
    record.env = options_.env;
    if (hooks_.on_record) hooks_.on_record(record);
    outcome.records.push_back(std::move(record));
    return outcome_of(outcome.records.back());
  }

  SweepOutcome outcome;

 private:
  [[nodiscard]] bool stopped() const { return hooks_.stop && hooks_.stop(); }

  const spec::Sweep& sweep_;
  const SweepOptions& options_;
  const SweepHooks& hooks_;
  std::set<std::string> verified_;
  PointRunner runner_;
};

/// Every point once a repetition, round after round, without those that are done. `walk` may be null to count
/// only.
std::vector<DriverPoint> driver_points(const spec::Sweep& sweep, const SweepOptions& options, Walk* walk) {
  std::vector<DriverPoint> points;
  const int first = options.process * sweep.measure.repetitions;
  for (int repetition = first; repetition < first + sweep.measure.repetitions; ++repetition) {
    for (const spec::SweepPoint& point : sweep.points) {
      const std::string name = point_name(point);
      if (options.done.contains(done_text(name, repetition))) continue;
      points.push_back(
          {name, [walk, &point, name, repetition] { return walk->measure(point, name, repetition); }});
    }
  }
  return points;
}

}  // namespace

std::string point_name(const spec::SweepPoint& point) {
  return name_text(point.backend, to_text(point.shape), point.step, point.options.num_splits,
                   point.options.threads, spec::name_of(point.caches), spec::mode_text(point.options));
}

std::string name_of(const report::BenchRecord& record) {
  return name_text(record.backend, record.key, record.work == "step", record.num_splits, record.threads,
                   record.cache_state, record.mode);
}

std::string done_key(const report::BenchRecord& record) {
  return done_text(name_of(record), record.repetition);
}

std::size_t count_points(const spec::Sweep& sweep, const SweepOptions& options) {
  return count_matching(driver_points(sweep, options, nullptr), options.driver);
}

SweepOutcome run_sweep(const spec::Sweep& sweep, const HostCeilings& ceilings, const SweepOptions& options,
                       const SweepHooks& hooks) {
  Walk walk(sweep, ceilings, options, hooks);
  drive(driver_points(sweep, options, &walk), options.driver);
  return std::move(walk.outcome);
}

}  // namespace mla::run
