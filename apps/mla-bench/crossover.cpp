// SPDX-License-Identifier: Apache-2.0
#include "crossover.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "run/backends.hpp"
#include "run/crossover.hpp"
#include "spec/values.hpp"

namespace mla::bench {
namespace {

using report::BenchRecord;

constexpr double kResolution = 1.05;

/// The axis by the name people use; only axes of counts have an order to bisect.
std::string axis_key(const std::string& name) {
  const std::string key = name == "batch" ? "requests" : name;
  std::vector<std::string> counts;
  for (const spec::SweepKey& k : spec::sweep_keys()) {
    if (k.section == spec::Section::kAxes && k.type == "COUNTS") counts.emplace_back(k.name);
  }
  if (std::ranges::find(counts, key) == counts.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--find-crossover along {} is not possible", text::quoted(name)),
                text::suggestion(key, counts));
  }
  return key;
}

struct Range {
  std::string axis;
  std::int64_t low = 0, high = 0;
};

/// From the smallest to the largest value that the axis has in the spec.
Range range_of(const std::string& axis_name, const spec::SweepSpec& spec) {
  Range range{axis_key(axis_name), 0, 0};
  const std::vector<std::int64_t> values =
      spec::parse_count_list(spec.settings.find(range.axis)->second.text, range.axis);
  const auto [low, high] = std::ranges::minmax(values);
  if (low < 1 || low == high) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is {}..{}: there is nothing between to bisect", range.axis, low, high),
                fmt::format("give a range from 1 on, like --{} 64..64k:x2", range.axis));
  }
  range.low = low;
  range.high = high;
  return range;
}

/// The two points of one x, the backends in the order given.
spec::Sweep sweep_at(spec::SweepSpec spec, const std::string& axis, std::int64_t x) {
  spec::override_setting(spec, axis, fmt::format("{}", x), spec::Level::kFlag, "--find-crossover");
  spec::Sweep sweep = spec::resolve(spec, backends_here(find_gpu({})));
  std::ranges::sort(sweep.points, {}, &spec::SweepPoint::position);
  if (sweep.points.size() != 2 || sweep.points[0].shape != sweep.points[1].shape ||
      sweep.points[0].backend == sweep.points[1].backend) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a crossover is between two backends at one shape; at {} {} the sweep has {} points",
                    axis, x, sweep.points.size()),
        "give two with --backend, and one value for every other axis");
  }
  return sweep;
}

run::Interval interval_of(const BenchRecord& record) {
  return {*record.time_low_us, *record.time_high_us};
}

/// Throws where one of the two cannot be measured: half a pair crosses nothing.
void fill(const std::vector<BenchRecord>& records, const spec::Sweep& sweep, run::CrossoverPoint& point) {
  for (const BenchRecord& record : records) {
    if (record.status != "ok") {
      throw Error(record.status == "unsupported" ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
                  fmt::format("{} at '{}': {}", record.backend, record.key, record.reason));
    }
    const bool first = record.backend == sweep.points[0].backend;
    (first ? point.first : point.second) = *record.time_us;
    (first ? point.first_interval : point.second_interval) = interval_of(record);
  }
}

std::string sentence(const run::Crossover& c, const std::string& axis, const std::string& first,
                     const std::string& second) {
  const auto winner = [&](int side) { return side < 0 ? first : second; };
  if (c.interrupted) return "interrupted before the crossover was found";
  const std::int64_t low = c.points.front().x;
  const std::int64_t high = c.points.back().x;
  if (!c.found) {
    if (c.below != 0 && c.below == c.above) {
      return fmt::format("no crossover: {} is faster at both ends, {} {} and {}", winner(c.below), axis, low,
                         high);
    }
    return fmt::format("no sure winner at {} {}: measure longer (--noise, --max-time) or widen the range",
                       axis, c.below == 0 ? low : high);
  }
  return fmt::format("{} is faster up to {} {}, {} from {} on; equal at about {:.0f}", winner(c.below), axis,
                     c.low, winner(c.above), c.high, c.estimate);
}

}  // namespace

void check_crossover(const std::string& axis_name, const spec::SweepSpec& spec) {
  const Range range = range_of(axis_name, spec);
  for (const spec::SweepPoint& point : sweep_at(spec, range.axis, range.low).points) {
    static_cast<void>(run::backend_named(point.backend));
  }
  static_cast<void>(sweep_at(spec, range.axis, range.high));
}

int find_crossover(const std::string& axis_name, const spec::SweepSpec& spec,
                   const run::SweepOptions& options, Keeper& keeper, const Session& session,
                   cli::Output output) {
  const auto [axis, low, high] = range_of(axis_name, spec);
  const spec::Sweep ends = sweep_at(spec, axis, low);
  const run::Crossover crossover =
      run::find_crossover(low, high, kResolution, [&](run::CrossoverPoint& point) {
        const spec::Sweep sweep = sweep_at(spec, axis, point.x);
        const run::SweepOutcome outcome = session.measure(sweep, options, &keeper);
        if (outcome.interrupted) return false;
        fill(outcome.records, sweep, point);
        return true;
      });
  const std::string& first = ends.points[0].backend;
  const std::string& second = ends.points[1].backend;
  report::Document document;
  document.kind = "bench.crossover";
  if (!crossover.points.empty()) document.headline.push_back(sentence(crossover, axis, first, second));
  report::Table table{"points",
                      "",
                      {{axis, axis},
                       {"first_us", first + " us", 1},
                       {"second_us", second + " us", 1},
                       {"ratio", first + " / " + second, 3},
                       {"faster", "surely faster"}},
                      {}};
  for (const run::CrossoverPoint& point : crossover.points) {
    const int side = point.faster();
    table.rows.push_back({point.x, point.first, point.second, point.first / point.second,
                          side == 0 ? report::Cell{} : report::Cell{side < 0 ? first : second}});
  }
  document.tables.push_back(std::move(table));
  document.facts = {{"found", crossover.found}};
  if (crossover.found) {
    document.facts.emplace_back("low", crossover.low);
    document.facts.emplace_back("high", crossover.high);
    document.facts.emplace_back("estimate", crossover.estimate);
  }
  cli::print(document, output);
  return crossover.interrupted ? cli::kInterrupted : cli::kOk;
}

}  // namespace mla::bench
