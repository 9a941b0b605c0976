// SPDX-License-Identifier: Apache-2.0
// Pictures of documents and documents as pages.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "expect_error.hpp"
#include "report/figure.hpp"
#include "report/gnuplot.hpp"
#include "report/table.hpp"

namespace mla::report {
namespace {

Figure sample() {
  return {.alternative = "bars & lines",
          .panels = {BarPanel{.title = "memory",
                              .y_title = "GiB",
                              .parts = {"weights", "cache"},
                              .bars = {{"a", {3, 5}}, {"b", {4, std::numeric_limits<double>::quiet_NaN()}}},
                              .stacked = true},
                     LinePanel{.title = "tokens",
                               .x_title = "context",
                               .y_title = "tokens",
                               .series = {{"TP8", {{1024, 10}, {65536, 9}}}, {"nothing", {}}}}}};
}

TEST(Figures, ScriptsHoldTheNumbers) {
  const std::string script = figure_script(sample(), Picture::kSvg);
  for (const char* part :
       {"set multiplot layout 1,2", " 3 5\n 4 ?\n", "set xtics ('a' 0, 'b' 1)", "rowstacked", "'TP8'",
        "1024 10\n65536 9\n", "set logscale x 2", "set xtics ('1k' 1024, '64k' 65536)"}) {
    EXPECT_NE(script.find(part), std::string::npos) << part << " is not in\n" << script;
  }
  EXPECT_EQ(script.find("'nothing'"), std::string::npos) << "a line without a point is not drawn";
  EXPECT_NE(figure_script(sample(), Picture::kPng).find("pngcairo"), std::string::npos);
}

TEST(Figures, TicksAreLengthsAsPeopleWriteThem) {
  Series many{"TP8", {}};
  for (int i = 0; i < 21; ++i) many.points.emplace_back(1024.0 * (1 << i), 1);
  many.points.emplace_back(6000, 1);
  Figure figure{.alternative = "",
                .panels = {LinePanel{.title = "t", .x_title = "x", .y_title = "y", .series = {many}}}};
  const std::string script = figure_script(figure, Picture::kSvg);
  // 22 values: every fourth, 1k, 8k (6000 lies before it), 128k, ...
  EXPECT_NE(script.find("set xtics ('1k' 1024, '8k' 8192, '128k' 131072, '2M' 2097152"), std::string::npos)
      << script;
}

TEST(Figures, ALegendHasRoomBelowTheAxis) {
  // The title of the axis and its ticks take 5 lines, names side by side half as many as there are, long ones one each.
  const auto script = [](const std::string& name) {
    LinePanel panel{.title = "t", .x_title = "x", .y_title = "y", .series = {}};
    for (int i = 0; i < 7; ++i) panel.series.push_back({name + std::to_string(i), {{1024, 1}, {8192, 2}}});
    return figure_script({.alternative = "", .panels = {panel}}, Picture::kPng);
  };
  const std::string narrow = script("TP8, fp8, ");
  EXPECT_NE(narrow.find("set bmargin 9\n"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("size 560,360 "), std::string::npos) << narrow;
  const std::string wide = script("16 GPUs, DP8xTP2+DCP2+EP16, bf16, ");
  EXPECT_NE(wide.find("set bmargin 12\n"), std::string::npos) << wide;
  EXPECT_NE(wide.find("maxcols 1 "), std::string::npos) << wide;
  EXPECT_NE(wide.find("size 560,414 "), std::string::npos) << wide;  // three lines of 18 more than the four
}

TEST(Figures, NothingToDrawIsAnError) {
  expect_error([] { return figure_script({}, Picture::kSvg); }, ErrorCode::kInvalidArgument,
               {"nothing to draw"});
  Figure empty{.alternative = "", .panels = {BarPanel{}, LinePanel{}}};
  expect_error([&] { return figure_script(empty, Picture::kSvg); }, ErrorCode::kInvalidArgument,
               {"nothing to draw"});
}

TEST(Figures, GnuplotTakesThem) {
  if (!have_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  Figure figure = sample();
  std::get<BarPanel>(figure.panels[0]).bars[0].name = "it's \"`date`\" \\ $x\n";
  EXPECT_NE(run_gnuplot(figure_script(figure, Picture::kSvg)).find("memory"), std::string::npos);
}

TEST(HtmlDocument, EverythingIsThereAndPlain) {
  Document document;
  document.kind = "test";
  document.headline = {"<fits> & more", "second"};
  document.facts = {{"model", std::string("<script>")}};
  document.tables = {
      {.name = "t", .title = "Table", .columns = {{.key = "a", .title = "A"}}, .rows = {{std::int64_t{7}}}}};
  document.notes = {"warning: x"};
  document.command = "mla-memcalc plan <x>";
  const std::string page = render(document, Format::kHtml);
  for (const char* part : {"<h1>&lt;fits&gt; &amp; more</h1>", "<p>second</p>", "&lt;script&gt;",
                           "<h2>Table</h2>", ">7</td>", "warning: x", "plan &lt;x&gt;", "</html>\n"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  EXPECT_EQ(parse_format("html"), Format::kHtml);
}

}  // namespace
}  // namespace mla::report
