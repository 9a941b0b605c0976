// SPDX-License-Identifier: Apache-2.0
#include "report/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "run/stats.hpp"

namespace mla::report {
namespace {

/// Each side at 97.5 %: both hold together with at least 95 % (Bonferroni), and so does the ratio of their
/// ends.
constexpr double kSideConfidence = 0.975;
/// Below seven samples order statistics give no 97.5 % interval.
constexpr std::size_t kFewestSamples = 7;
/// A difference of clocks worth a word.
constexpr double kClockDrift = 0.01;

/// What one run says about one point.
struct Side {
  std::vector<const BenchRecord*> records;
  std::vector<double> samples;
  run::Interval interval{INFINITY, 0};
  std::size_t fewest = SIZE_MAX;  ///< samples of the poorest repetition
  double median = 0;              ///< of the repetitions' medians
  double clock_mhz = 0;           ///< mean; 0 where it is not known
};

Side make_side(const std::vector<const BenchRecord*>& records) {
  Side side;
  std::vector<double> medians;
  for (const BenchRecord* record : records) {
    if (record->status != "ok" || record->samples_us.empty()) continue;
    side.records.push_back(record);
    std::vector<double> sorted = record->samples_us;
    std::ranges::sort(sorted);
    const run::Interval one = run::median_interval(sorted, kSideConfidence);
    side.interval = {std::min(side.interval.low, one.low), std::max(side.interval.high, one.high)};
    medians.push_back(run::quantile(sorted, 0.5));
    side.fewest = std::min(side.fewest, sorted.size());
    side.samples.insert(side.samples.end(), sorted.begin(), sorted.end());
  }
  if (side.samples.empty()) return side;
  double clocks = 0;
  for (const BenchRecord* record : side.records) clocks += record->sm_clock_mhz.value_or(NAN);
  if (std::isfinite(clocks)) side.clock_mhz = clocks / static_cast<double>(side.records.size());
  std::ranges::sort(medians);
  side.median = run::quantile(medians, 0.5);
  return side;
}

using Points = std::map<std::string, std::vector<const BenchRecord*>>;

Points by_identity(std::span<const BenchRecord> records, std::vector<std::string>& order) {
  Points points;
  for (const BenchRecord& record : records) {
    auto& list = points[identity(record)];
    if (list.empty()) order.push_back(identity(record));
    list.push_back(&record);
  }
  return points;
}

PointChange compare_point(const std::vector<const BenchRecord*>& base_records,
                          const std::vector<const BenchRecord*>& now_records, double threshold) {
  PointChange point;
  point.base = base_records.front();
  point.now = now_records.front();
  const auto bad = std::ranges::find_if(now_records, [](const BenchRecord* r) { return r->status != "ok"; });
  const Side base = make_side(base_records);
  const Side now = make_side(now_records);
  if (base.samples.empty()) {  // did not work before: nothing to lose
    point.change = Change::kAmbiguous;
    point.why = fmt::format("the base has no time: {}", point.base->status);
    return point;
  }
  if (bad != now_records.end() || now.samples.empty()) {
    point.change = Change::kBroken;
    const BenchRecord& record = bad == now_records.end() ? *now_records.front() : **bad;
    point.why = fmt::format("{}: {}", record.status, record.reason);
    return point;
  }
  point.base_us = base.median;
  point.now_us = now.median;
  point.n_base = static_cast<std::int64_t>(base.samples.size());
  point.n_now = static_cast<std::int64_t>(now.samples.size());
  point.ratio = now.median / base.median;
  point.low = now.interval.low / base.interval.high;
  point.high = now.interval.high / base.interval.low;
  const double slower = 1 + threshold;
  const double faster = 1 / slower;
  if (const std::size_t fewest = std::min(base.fewest, now.fewest); fewest < kFewestSamples) {
    point.change = Change::kAmbiguous;
    point.why = fmt::format("{} samples have no interval; {} do", fewest, kFewestSamples);
  } else if (point.low > slower) {
    point.change = Change::kSlower;
  } else if (point.high < faster) {
    point.change = Change::kFaster;
  } else if (point.low >= faster && point.high <= slower) {
    point.change = Change::kSame;
  } else {
    point.change = Change::kAmbiguous;
    point.why = fmt::format("the interval crosses {:+.1f} %",
                            point.high > slower ? threshold * 100 : (faster - 1) * 100);
  }
  if (base.clock_mhz > 0 && now.clock_mhz > 0) {
    const double drift = now.clock_mhz / base.clock_mhz;
    point.cycles = point.ratio * drift;
    if ((point.change == Change::kSlower || point.change == Change::kFaster) &&
        std::abs(drift - 1) > kClockDrift) {
      point.why = fmt::format("the SM clock went from {:.0f} to {:.0f} MHz; in cycles it is {:+.1f} %",
                              base.clock_mhz, now.clock_mhz, (*point.cycles - 1) * 100);
    }
  }
  return point;
}

/// Worst first.
int severity(Change change) {
  switch (change) {
    case Change::kBroken:
      return 0;
    case Change::kSlower:
      return 1;
    case Change::kAmbiguous:
      return 2;
    case Change::kFaster:
      return 3;
    case Change::kSame:
      break;
  }
  return 4;
}

Cell percent(double ratio) {
  return fmt::format("{:+.1f} %", (ratio - 1) * 100);
}

}  // namespace

std::string_view name_of(Change change) noexcept {
  switch (change) {
    case Change::kSame:
      return "SAME";
    case Change::kFaster:
      return "FASTER";
    case Change::kSlower:
      return "SLOWER";
    case Change::kAmbiguous:
      return "AMBIGUOUS";
    case Change::kBroken:
      break;
  }
  return "BROKEN";
}

std::int64_t RunChange::count(Change change) const noexcept {
  return std::ranges::count(points, change, &PointChange::change);
}

RunChange compare_runs(std::span<const BenchRecord> base, std::span<const BenchRecord> now,
                       double threshold) {
  RunChange change;
  std::vector<std::string> base_order;
  std::vector<std::string> now_order;
  const Points base_points = by_identity(base, base_order);
  const Points now_points = by_identity(now, now_order);
  double log_sum = 0;
  int timed = 0;
  for (const std::string& id : base_order) {
    const auto found = now_points.find(id);
    if (found == now_points.end()) {
      change.only_base.push_back(id);
      continue;
    }
    const auto no_time = [](const std::vector<const BenchRecord*>& records) {
      return std::ranges::none_of(records, [](const BenchRecord* r) { return !r->samples_us.empty(); });
    };
    if (no_time(base_points.at(id)) && no_time(found->second)) {
      ++change.untimed;
      continue;
    }
    change.points.push_back(compare_point(base_points.at(id), found->second, threshold));
    if (change.points.back().now_us > 0) {
      log_sum += std::log(change.points.back().ratio);
      ++timed;
    }
  }
  for (const std::string& id : now_order) {
    if (!base_points.contains(id)) change.only_now.push_back(id);
  }
  if (timed > 0) change.ratio = std::exp(log_sum / timed);
  return change;
}

Document compare_document(const RunChange& change, double threshold) {
  Document document;
  document.kind = "bench.compare";
  std::string line = fmt::format("{} points:", change.points.size());
  for (const Change c :
       {Change::kBroken, Change::kSlower, Change::kAmbiguous, Change::kFaster, Change::kSame}) {
    if (const std::int64_t n = change.count(c); n > 0) line += fmt::format(" {} {}", n, name_of(c));
  }
  document.headline.push_back(
      fmt::format("{}; geometric mean of now / base {:.3f}; changes up to {:.2g} % do not count", line,
                  change.ratio, threshold * 100));

  std::vector<const PointChange*> order;
  for (const PointChange& point : change.points) order.push_back(&point);
  std::ranges::stable_sort(order, [](const PointChange* a, const PointChange* b) {
    if (severity(a->change) != severity(b->change)) return severity(a->change) < severity(b->change);
    return a->ratio > b->ratio;
  });
  Table table{"changes", "", {{"change", "change"}}, {}};
  std::vector<BenchRecord> bases;
  for (const PointChange& point : change.points) bases.push_back(*point.base);
  const std::vector<Column> axes = axis_columns();
  const std::vector<std::size_t> kept = telling_axes(bases);
  for (const std::size_t i : kept) table.columns.push_back(axes[i]);
  const bool clocks =
      std::ranges::any_of(change.points, [](const PointChange& p) { return p.cycles.has_value(); });
  for (const Column& column :
       {Column{"base_us", "base us", 1}, Column{"now_us", "now us", 1}, Column{"ratio", "ratio", 3},
        Column{"low", "low"}, Column{"high", "high"}, Column{"cycles", "in cycles"},
        Column{"n_base", "n base"}, Column{"n_now", "n now"}, Column{"why", "why"}}) {
    if (column.key != "cycles" || clocks) table.columns.push_back(column);
  }
  for (const PointChange* point : order) {
    std::vector<Cell> row{std::string(name_of(point->change))};
    const std::vector<Cell> cells = axis_cells(*point->base);
    for (const std::size_t i : kept) row.push_back(cells[i]);
    const bool timed = point->now_us > 0;
    row.push_back(timed ? Cell{point->base_us} : Cell{});
    row.push_back(timed ? Cell{point->now_us} : Cell{});
    row.push_back(timed ? Cell{point->ratio} : Cell{});
    row.push_back(timed ? percent(point->low) : Cell{});
    row.push_back(timed ? percent(point->high) : Cell{});
    if (clocks) row.push_back(point->cycles ? percent(*point->cycles) : Cell{});
    row.emplace_back(point->n_base);
    row.emplace_back(point->n_now);
    row.push_back(point->why.empty() ? Cell{} : Cell{point->why});
    table.rows.push_back(std::move(row));
  }
  document.tables.push_back(std::move(table));
  if (change.untimed > 0)
    document.notes.push_back(fmt::format("{} more points have a time in neither run", change.untimed));
  for (const std::string& id : change.only_base) document.notes.push_back("only in the base: " + id);
  for (const std::string& id : change.only_now) document.notes.push_back("only now: " + id);
  return document;
}

}  // namespace mla::report
