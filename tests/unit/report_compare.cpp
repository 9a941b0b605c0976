// SPDX-License-Identifier: Apache-2.0
// Two runs against each other: what is flagged, what must not be, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "expect_error.hpp"
#include "mla/random.hpp"
#include "report/compare.hpp"
#include "report/where.hpp"

namespace {

using namespace mla::report;
using mla::ErrorCode;

constexpr const char* kKey =
    "decode head h16 l512 r64 p128 v128 4q1s1k causal b64 q:bf16 out:bf16 cache:bf16";

/// Times as machines give them: a hard lower edge, small noise, and now and then a much longer one.
std::vector<double> times(double base_us, double noise, std::size_t n, std::uint64_t seed) {
  const mla::CounterRng rng(seed);
  std::vector<double> samples;
  for (std::size_t i = 0; i < n; ++i) {
    double t = base_us * (1 + noise * std::abs(rng.normal(i)));
    if (rng.uniform(1000 + i) < 0.05) t *= 1.4;
    samples.push_back(t);
  }
  return samples;
}

BenchRecord record(std::vector<double> samples, const std::string& backend = "a") {
  BenchRecord r;
  r.key = kKey;
  r.backend = backend;
  r.device = "host";
  r.cache_state = "cold";
  r.timer = "wall";
  r.status = "ok";
  r.n = static_cast<std::int64_t>(samples.size());
  r.samples_us = std::move(samples);
  return r;
}

PointChange one(std::vector<double> base, std::vector<double> now, double threshold = 0.03) {
  static std::vector<BenchRecord> b;
  static std::vector<BenchRecord> n;
  b = {record(std::move(base))};
  n = {record(std::move(now))};
  return compare_runs(b, n, threshold).points.at(0);
}

/// Every second sample of records, times a factor.
std::vector<BenchRecord> half(const std::vector<BenchRecord>& records, std::size_t first, double factor) {
  std::vector<BenchRecord> result = records;
  for (BenchRecord& r : result) {
    std::vector<double> kept;
    for (std::size_t i = first; i < r.samples_us.size(); i += 2) kept.push_back(r.samples_us[i] * factor);
    r.samples_us = std::move(kept);
  }
  return result;
}

TEST(Compare, JudgesSlowdownsOfSamplesRecordedOnAGpu) {
  // 22 to 101 samples a point from one H200: two halves of them are two measurements of the same thing.
  const RunFile run = read_run(std::string(MLA_TEST_DATA) + "/data/bench/h200.jsonl");
  ASSERT_EQ(run.records.size(), 12U);
  const std::vector<BenchRecord> base = half(run.records, 0, 1);
  const auto count = [&](double factor, Change change) {
    const std::vector<BenchRecord> now = half(run.records, 1, factor);
    return compare_runs(base, now, 0.03).count(change);
  };
  EXPECT_EQ(count(1.05, Change::kSlower), 12);
  EXPECT_EQ(count(1.005, Change::kSame), 12);
  EXPECT_EQ(count(1.0, Change::kSame), 12);
  EXPECT_EQ(count(1 / 1.05, Change::kFaster), 12);
}

/// Records of these processes, times a factor.
std::vector<BenchRecord> of_processes(const RunFile& run, const std::vector<std::string>& names,
                                      double factor) {
  std::vector<BenchRecord> chosen;
  for (const BenchRecord& record : run.records) {
    if (std::ranges::find(names, record.env) == names.end()) continue;
    chosen.push_back(record);
    for (double& us : chosen.back().samples_us) us *= factor;
  }
  return chosen;
}

TEST(Compare, ProcessesRecordedOnAGpuDoNotDifferFromOneAnother) {
  // The six points that moved most or are shortest, each three times, elsewhere in memory, in four processes of one
  // H200: pairs of processes differ by up to 2 %, and no more than a change of 5 % may hide in that.
  const RunFile run = read_run(std::string(MLA_TEST_DATA) + "/data/bench/h200-processes.jsonl");
  const std::vector<std::string> names{"process-1", "process-2", "process-3", "process-4"};
  int compared = 0;
  int slower = 0;
  for (const std::string& base : names) {
    for (const std::string& now : names) {
      if (base == now) continue;
      SCOPED_TRACE(base + " " + now);
      const std::vector<BenchRecord> before = of_processes(run, {base}, 1);
      const auto against = [&](double factor) {
        const std::vector<BenchRecord> after = of_processes(run, {now}, factor);
        return compare_runs(before, after, 0.03);
      };
      EXPECT_EQ(against(1).count(Change::kSlower) + against(1).count(Change::kFaster), 0);
      EXPECT_EQ(against(1.005).count(Change::kSlower), 0);
      EXPECT_EQ(against(1.05).count(Change::kSame), 0);
      const RunChange change = against(1.05);
      compared += static_cast<int>(change.points.size());
      slower += static_cast<int>(change.count(Change::kSlower));
    }
  }
  EXPECT_EQ(compared, 12 * 6);
  EXPECT_GE(slower, compared * 8 / 10) << "the others are AMBIGUOUS";
  // Two processes a side.
  const std::vector<BenchRecord> odd = of_processes(run, {"process-1", "process-3"}, 1);
  const std::vector<BenchRecord> even = of_processes(run, {"process-2", "process-4"}, 1);
  EXPECT_EQ(compare_runs(odd, even, 0.03).count(Change::kSame), 6);
}

TEST(Compare, FlagsFivePercentAndNotHalfAPercent) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    const auto base = times(100, 0.01, 60, 2 * seed);
    EXPECT_EQ(one(base, times(105, 0.01, 60, 2 * seed + 1)).change, Change::kSlower);
    EXPECT_EQ(one(base, times(100.5, 0.01, 60, 2 * seed + 1)).change, Change::kSame);
    EXPECT_EQ(one(base, times(95, 0.01, 60, 2 * seed + 1)).change, Change::kFaster);
  }
}

TEST(Compare, NoFalseAlarmsOnNoisyEqualRuns) {
  int ambiguous = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Change change = one(times(50, 0.05, 25, 2 * seed), times(50, 0.05, 25, 2 * seed + 1)).change;
    EXPECT_NE(change, Change::kSlower) << seed;
    EXPECT_NE(change, Change::kFaster) << seed;
    ambiguous += change == Change::kAmbiguous ? 1 : 0;
  }
  EXPECT_GT(ambiguous, 0) << "5 % of noise and 25 samples cannot always settle 3 %, and that must be said";
}

TEST(Compare, TheIntervalOfTheRatioByHand) {
  // Seven samples: the 97.5 % interval of each median is its range.
  const PointChange p = one({10, 11, 12, 13, 14, 15, 16}, {26, 20, 21, 22, 23, 24, 25});
  EXPECT_DOUBLE_EQ(p.base_us, 13);
  EXPECT_DOUBLE_EQ(p.now_us, 23);
  EXPECT_DOUBLE_EQ(p.ratio, 23.0 / 13);
  EXPECT_DOUBLE_EQ(p.low, 20.0 / 16);
  EXPECT_DOUBLE_EQ(p.high, 26.0 / 10);
  EXPECT_EQ(p.change, Change::kSlower);
}

TEST(Compare, TooFewSamplesProveNothing) {
  const PointChange p = one({10, 10, 10}, {20, 20, 20});
  EXPECT_EQ(p.change, Change::kAmbiguous);
  EXPECT_NE(p.why.find("3 samples"), std::string::npos);
}

TEST(Compare, RepetitionsThatDisagreeWidenTheInterval) {
  const std::vector<BenchRecord> base{record(times(100, 0.002, 40, 1)), record(times(108, 0.002, 40, 2))};
  const std::vector<BenchRecord> now{record(times(105, 0.002, 40, 3)), record(times(106, 0.002, 40, 4))};
  const RunChange change = compare_runs(base, now, 0.03);
  ASSERT_EQ(change.points.size(), 1U);
  EXPECT_EQ(change.points[0].change, Change::kAmbiguous);
  EXPECT_EQ(change.points[0].n_base, 80);
}

TEST(Compare, AClockThatFellIsToldFromASlowerKernel) {
  std::vector<BenchRecord> base{record(times(100, 0.001, 40, 1)), record(times(50, 0.001, 40, 2), "other")};
  std::vector<BenchRecord> now{record(times(110, 0.001, 40, 3)), record(times(55, 0.001, 40, 4), "other")};
  base[0].sm_clock_mhz = 1980;
  now[0].sm_clock_mhz = 1800;
  const RunChange change = compare_runs(base, now, 0.03);
  EXPECT_EQ(change.points.at(0).change, Change::kSlower) << "it is slower, whatever the reason";
  ASSERT_TRUE(change.points[0].cycles.has_value());
  EXPECT_NEAR(*change.points[0].cycles, 1, 0.005);
  EXPECT_NE(change.points[0].why.find("from 1980 to 1800 MHz; in cycles it is"), std::string::npos);
  EXPECT_FALSE(change.points.at(1).cycles.has_value());
  EXPECT_EQ(change.points[1].why, "");
  const Document document = compare_document(change, 0.03);
  const auto has_cycles = [](const Document& d) {
    return std::ranges::find(d.tables[0].columns, "cycles", &Column::key) != d.tables[0].columns.end();
  };
  EXPECT_TRUE(has_cycles(document));
  base[0].sm_clock_mhz.reset();
  EXPECT_FALSE(has_cycles(compare_document(compare_runs(base, now, 0.03), 0.03)))
      << "nothing to say, no column";
}

TEST(Compare, WhatWorkedAndIsWrongNowIsBroken) {
  std::vector<BenchRecord> base{record(times(100, 0.01, 20, 1))};
  std::vector<BenchRecord> now{record({})};
  now[0].status = "wrong";
  now[0].reason = "row 3";
  const RunChange change = compare_runs(base, now, 0.03);
  EXPECT_EQ(change.points.at(0).change, Change::kBroken);
  EXPECT_NE(change.points.at(0).why.find("row 3"), std::string::npos);
  const RunChange neither = compare_runs(now, now, 0.03);
  EXPECT_TRUE(neither.points.empty()) << "it did not work before either";
  EXPECT_EQ(neither.untimed, 1);
  EXPECT_EQ(compare_runs(now, base, 0.03).points.at(0).change, Change::kAmbiguous) << "it works now";
}

TEST(Compare, ListsWhatOnlyOneRunHasAndSortsWorstFirst) {
  const std::vector<BenchRecord> base{record(times(100, 0.001, 20, 1), "same"),
                                      record(times(100, 0.001, 20, 2), "slow"),
                                      record(times(100, 0.001, 20, 3), "gone")};
  const std::vector<BenchRecord> now{record(times(100, 0.001, 20, 4), "same"),
                                     record(times(120, 0.001, 20, 5), "slow"),
                                     record(times(100, 0.001, 20, 6), "new")};
  const RunChange change = compare_runs(base, now, 0.03);
  ASSERT_EQ(change.only_base.size(), 1U);
  EXPECT_NE(change.only_base[0].find("gone"), std::string::npos);
  ASSERT_EQ(change.only_now.size(), 1U);
  EXPECT_NEAR(change.ratio, std::sqrt(1.2), 0.002);
  const Document document = compare_document(change, 0.03);
  EXPECT_EQ(document.tables.at(0).rows.at(0).at(0), Cell("SLOWER"));
  EXPECT_EQ(document.tables.at(0).rows.at(1).at(0), Cell("SAME"));
  EXPECT_NE(document.headline.at(0).find("1 SLOWER"), std::string::npos);
  EXPECT_EQ(document.notes.size(), 2U);
}

std::vector<Column> columns() {
  return {{"kv", "kv"}, {"backend", "backend"}, {"window", "window"}, {"time_us", "us"}};
}

bool holds(const char* text, const std::vector<Cell>& row) {
  return Where(text, columns()).matches(row);
}

TEST(WhereConditions, CompareNumbersAndTexts) {
  const std::vector<Cell> row{std::int64_t{4096}, "cpu", "256", 1.5};
  for (const char* yes :
       {"kv=4k", "kv=4096", "kv>=4k", "kv<=4k", "kv>1k", "kv<8k", "kv!=5", "backend=cpu", "backend!=gpu",
        "window=256", "window<1k", "time_us>1.4", "kv=4k,backend=cpu,time_us<2"}) {
    EXPECT_TRUE(holds(yes, row)) << yes;
  }
  for (const char* no : {"kv=4", "kv>4k", "kv<4k", "kv!=4k", "backend=gpu", "backend!=cpu", "window>256",
                         "kv=4k,backend=gpu"}) {
    EXPECT_FALSE(holds(no, row)) << no;
  }
  const std::vector<Cell> empty{Cell{}, "cpu", "full", Cell{}};
  EXPECT_FALSE(holds("kv<1m", empty)) << "no number is not a small number";
  EXPECT_FALSE(holds("window<1m", empty));
  EXPECT_TRUE(holds("window=full", empty));
}

TEST(WhereConditions, SayWhatIsWrongWithThem) {
  const auto make = [](const char* text) { return [text] { return Where(text, columns()).matches({}); }; };
  expect_error(make("kv"), ErrorCode::kInvalidArgument, {"'kv'"});
  expect_error(make("=3"), ErrorCode::kInvalidArgument, {"'=3'"});
  expect_error(make("kw=3"), ErrorCode::kInvalidArgument, {"'kw'"});
  expect_error(make("kv<big"), ErrorCode::kInvalidArgument, {"'big'"});
  expect_error(make("kv=3,,"), ErrorCode::kInvalidArgument, {"''"});
}

}  // namespace
