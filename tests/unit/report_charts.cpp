// SPDX-License-Identifier: Apache-2.0
// Charts and the HTML page: the numbers reach them, hostile text does not get out of its place, gnuplot
// accepts the scripts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "expect_error.hpp"
#include "report/chart.hpp"
#include "report/findings.hpp"
#include "report/gnuplot.hpp"
#include "report/html.hpp"

namespace {

using namespace mla::report;
using mla::ErrorCode;

BenchRecord record(const std::string& backend, const std::string& batch, const std::string& mask, double us) {
  BenchRecord r;
  r.key = "decode head h16 l512 r64 p128 v128 " + batch + " " + mask + " b64 q:bf16 out:bf16 cache:bf16";
  r.backend = backend;
  r.device = "host";
  r.cache_state = "cold";
  r.timer = "wall";
  r.status = "ok";
  r.verified = "sample";
  r.time_us = us;
  r.gflops = 1e5 / us;
  r.gbps = 1e4 / us;
  r.flops = 1e8;
  r.bytes = 1e7;
  r.least_flops = 1e8;
  r.ceiling_gbps = 100;
  r.ceiling_gflops = 5000;
  r.error_share = 0.25;
  return r;
}

std::vector<BenchRecord> sample() {
  return {record("x", "1q1s1k", "causal", 100),   record("y", "1q1s1k", "causal", 50),
          record("x", "1q1s64k", "causal", 4000), record("y", "1q1s64k", "causal", 8000),
          record("x", "1q1s64k", "w256", 1000),   record("y", "8q1s64k", "causal", 9000)};
}

TEST(Panels, SortByColumnsAndTakeMediansOfRepetitions) {
  std::vector<BenchRecord> records = sample();
  records.push_back(record("x", "1q1s1k", "causal", 300));
  records.push_back(record("x", "1q1s1k", "causal", 200));
  const std::vector<Panel> panels = make_panels(
      record_table(records, true), {.x = "kv", .y = "time_us", .by = "backend", .facet = "window"});
  ASSERT_EQ(panels.size(), 2U);
  EXPECT_EQ(panels[0].title, "window full");
  ASSERT_EQ(panels[0].series.size(), 2U);
  EXPECT_EQ(panels[0].series[0].name, "x");
  EXPECT_EQ(panels[0].series[0].points, (std::vector<std::pair<double, double>>{{1024, 200}, {65536, 4000}}));
  EXPECT_EQ(panels[0].series[1].points[1].second, 8500) << "median of two batches at one length";
  EXPECT_EQ(panels[1].title, "window 256");
}

TEST(Panels, SeveralColumnsMakePanelsAndLines) {
  const std::vector<Panel> panels =
      make_panels(record_table(sample(), true),
                  {.x = "kv", .y = "time_us", .by = "backend,window", .facet = "requests,heads"});
  ASSERT_EQ(panels.size(), 2U);
  EXPECT_EQ(panels[0].title, "requests 1, heads 16");
  EXPECT_EQ(panels[1].title, "requests 8, heads 16");
  ASSERT_EQ(panels[0].series.size(), 3U);
  EXPECT_EQ(panels[0].series[0].name, "x, 256");
  EXPECT_EQ(panels[0].series[2].name, "y, full");
}

TEST(Pivot, IsTheChartAsATable) {
  const Table table = record_table(sample(), true);
  const Table pivot = pivot_table(table, {.x = "kv", .y = "time_us", .by = "backend", .facet = "requests"});
  ASSERT_EQ(pivot.columns.size(), 4U);
  EXPECT_EQ(pivot.columns[2].key, "x");
  ASSERT_EQ(pivot.rows.size(), 3U);
  EXPECT_EQ(pivot.rows[0], (std::vector<Cell>{std::int64_t{1}, std::int64_t{1024}, 100.0, 50.0}));
  EXPECT_EQ(pivot.rows[1][2], Cell{2500.0}) << "median of two windows";
  EXPECT_EQ(pivot.rows[2], (std::vector<Cell>{std::int64_t{8}, std::int64_t{65536}, Cell{}, 9000.0}));
  std::vector<BenchRecord> windows = sample();
  windows.push_back(record("x", "1q1s64k", "w1024", 1500));
  const Table by_window = pivot_table(record_table(windows, true), {.x = "window", .facet = ""});
  ASSERT_EQ(by_window.rows.size(), 3U) << "a text may stand across";
  EXPECT_EQ(by_window.rows[0][0], Cell{std::string("full")});
  EXPECT_EQ(by_window.rows[1][0], Cell{std::int64_t{256}}) << "and numbers among texts sort as numbers";
  expect_error([&] { return pivot_table(table, {.y = "backend"}).rows.size(); }, ErrorCode::kInvalidArgument,
               {"backend", "number"});
}

TEST(Panels, RefuseColumnsThatAreNotThereOrHoldNoNumbers) {
  const Table table = record_table(sample(), true);
  expect_error([&] { return make_panels(table, {.x = "kvv", .y = "time_us"}).size(); },
               ErrorCode::kInvalidArgument, {"'kvv'"});
  expect_error([&] { return make_panels(table, {.x = "kv", .y = "backend"}).size(); },
               ErrorCode::kInvalidArgument, {"kv", "backend", "number"});
}

TEST(Gnuplot, DrawsEveryChart) {
  if (!have_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  const Table table = record_table(sample(), true);
  const auto is_svg = [](const std::string& text) {
    return text.find("<svg") != std::string::npos && text.find("</svg>") != std::string::npos;
  };
  EXPECT_TRUE(is_svg(run_gnuplot(line_script(make_panels(table, {}), "kv", "time us", Picture::kSvg))));
  EXPECT_TRUE(is_svg(run_gnuplot(roofline_script(sample(), Picture::kSvg))));
  EXPECT_TRUE(is_svg(run_gnuplot(speedup_script(speedup_table(sample()), Picture::kSvg))));
  EXPECT_TRUE(run_gnuplot(roofline_script(sample(), Picture::kPng)).starts_with("\x89PNG"));
  expect_error([] { return run_gnuplot("plot nonsense ("); }, ErrorCode::kInternal, {"gnuplot"});
}

TEST(Gnuplot, NamesCannotEndTheirQuotes) {
  EXPECT_EQ(gnuplot_quoted("a'; system('x\nb\\"), "'a''; system(''x b\\'");
  if (!have_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::filesystem::path mark =
      std::filesystem::temp_directory_path() / ("mla-hostile-" + std::to_string(getpid()));
  std::vector<BenchRecord> records = sample();
  records[0].backend = "`touch " + mark.string() + "` ' \" $ \\";
  EXPECT_NO_THROW(static_cast<void>(run_gnuplot(roofline_script(records, Picture::kSvg))));
  EXPECT_NO_THROW(static_cast<void>(run_gnuplot(speedup_script(speedup_table(records), Picture::kSvg))));
  EXPECT_NO_THROW(static_cast<void>(run_gnuplot(
      line_script(make_panels(record_table(records, true), {}), "kv", "time us", Picture::kSvg))));
  EXPECT_FALSE(std::filesystem::exists(mark)) << "a name was run as a command";
  std::filesystem::remove(mark);
}

TEST(Charts, RefuseWhatCannotBeDrawn) {
  const std::vector<BenchRecord> one{record("x", "1q1s1k", "causal", 100)};
  expect_error([&] { return speedup_script(speedup_table(one), Picture::kSvg); }, ErrorCode::kInvalidArgument,
               {"two backends"});
  BenchRecord bare = one[0];
  bare.ceiling_gbps.reset();
  const std::vector<BenchRecord> without{bare};
  expect_error([&] { return roofline_script(without, Picture::kSvg); }, ErrorCode::kInvalidArgument,
               {"roofline"});
}

TEST(Speedups, AreTimesOfTheSlowestOfEachShape) {
  const Table table = speedup_table(sample());
  ASSERT_EQ(table.columns.size(), 4U);
  ASSERT_EQ(table.rows.size(), 2U) << "the other two shapes have one backend each";
  EXPECT_EQ(table.rows[0][2], Cell(1.0));
  EXPECT_EQ(table.rows[0][3], Cell(2.0));
  EXPECT_EQ(table.rows[1][2], Cell(2.0));
  EXPECT_EQ(table.rows[1][3], Cell(1.0));
}

TEST(Html, EscapesAndEncodes) {
  EXPECT_EQ(html_escaped("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

TEST(Html, IsOneFileWithoutTheNetworkAndHoldsTheNumbers) {
  std::vector<BenchRecord> records = sample();
  records[0].reason = "<script>alert(1)</script>";
  const std::string page =
      render_html({.title = "T & t",
                   .question = "why?",
                   .findings = findings(records),
                   .records = records,
                   .environments = {{"e1", {{"cpu", "<b>"}, {"command", "mla-bench run"}}}},
                   .chart = {},
                   .command = "mla-bench report x"});
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  for (const char* part : {"<title>T &amp; t</title>", "why?", "mla-bench run\nmla-bench report x",
                           "y<br><small>1 of 1, up to 2.00x", "x<br><small>1 of 1, up to 2.00x",
                           "25.0 % of the budget", "6 of 6 points", "&lt;script&gt;alert(1)"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("http"), std::string::npos) << "nothing to fetch";
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
}

TEST(Findings, TheTallyDoesNotCallVerifiedWhatWasNot) {
  std::vector<BenchRecord> records = sample();
  EXPECT_EQ(tally(records), "6 points measured, each verified first");
  records[0].verified = "no";
  EXPECT_EQ(tally(records), "6 points measured, 1 of them not verified");
  records[1].status = "unsupported";
  EXPECT_EQ(tally(records), "5 points measured, 1 of them not verified; 1 unsupported");
}

TEST(Findings, CompareBackendsAndWindowsOverCommonShapes) {
  const std::vector<std::string> sentences = findings(sample());
  ASSERT_EQ(sentences.size(), 2U);
  // x/y: 50/100 and 8000/4000: geometric mean 1.
  EXPECT_EQ(sentences[0], "x is 1.00 times as fast as y (geometric mean of 2 shapes, 0.50 to 2.00)");
  EXPECT_EQ(sentences[1], "x: window 256 is 4.00 times as fast as all keys");
  EXPECT_EQ(tally(sample()), "6 points measured, each verified first");
  std::vector<BenchRecord> records = sample();
  records[0].status = "wrong";
  records[1].status = "unsupported";
  EXPECT_EQ(tally(records), "4 points measured, each verified first; 1 wrong; 1 unsupported");
}

}  // namespace
