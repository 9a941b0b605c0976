// SPDX-License-Identifier: Apache-2.0
// One document in four views, against golden texts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "expect_error.hpp"
#include "report/render.hpp"
#include "report/table.hpp"

namespace {

using namespace mla::report;

Document sample() {
  Document d;
  d.kind = "test.sample";
  d.headline = {"It fits."};
  d.facts = {{"gpus", std::int64_t{8}}, {"share", 0.123456789}, {"ok", true}, {"none", Cell{}}};
  Table t{"rows",
          "Things",
          {{"name", "name"}, {"bytes", "bytes", 0, true}, {"time_us", "time us", 1}, {"ok", "ok"}},
          {}};
  t.rows.push_back({"a,\"b\"", std::int64_t{1234567}, 1.25, true});
  t.rows.push_back({"x|y\nz", std::int64_t{-1000}, std::numeric_limits<double>::quiet_NaN(), false});
  t.rows.push_back({"größe 中", Cell{}, std::numeric_limits<double>::infinity(), Cell{}});
  d.tables = {t};
  d.notes = {"a note"};
  return d;
}

TEST(ReportText, AlignsNumbersRightAndCountsWideCharacters) {
  Document d = sample();
  d.tables[0].rows[1][0] = "x|y";
  EXPECT_EQ(render(d, Format::kTable),
            "It fits.\n"
            "\n"
            "gpus   8\n"
            "share  0.123457\n"
            "ok     yes\n"
            "none   -\n"
            "\n"
            "Things\n"
            "name          bytes  time us  ok\n"
            "a,\"b\"     1,234,567      1.2  yes\n"
            "x|y          -1,000      nan  no\n"
            "größe 中          -      inf  -\n"
            "\n"
            "a note\n");
}

TEST(ReportText, CutsTextButNeverNumbers) {
  Document d;
  d.tables.push_back({"t", "", {{"w", "words"}, {"n", "number"}}, {}});
  d.tables[0].rows.push_back({"abcdefghijklmnop", std::int64_t{1234567890}});
  EXPECT_EQ(render(d, Format::kTable, {.width = 22}),
            "words           number\nabcdefghi\u2026  1234567890\n");
  EXPECT_EQ(render(d, Format::kTable, {.width = 5}), "words         number\nabcdefg\u2026  1234567890\n");
}

TEST(ReportText, NamesThatTellRowsApartAreNotCut) {
  Document d;
  Table t{
      "rows", "", {{.key = "layout", .title = "layout", .whole = true}, {.key = "why", .title = "why"}}, {}};
  t.rows.push_back({"PP2xDP2xTP4+DCP4+EP8", "a long sentence that may be cut"});
  d.tables = {t};
  const std::string text = render(d, Format::kTable, {.width = 30});
  EXPECT_NE(text.find("PP2xDP2xTP4+DCP4+EP8  a long \u2026"), std::string::npos) << text;
}

TEST(ReportText, FoldsConstantColumnsAboveTheTable) {
  Document d;
  d.tables.push_back({"t", "", {{"a", "heads"}, {"b", "dtype"}, {"c", "us", 1}, {"d", "empty"}}, {}});
  d.tables[0].rows.push_back({std::int64_t{16}, "bf16", 1.0, Cell{}});
  EXPECT_EQ(render(d, Format::kTable, {.fold_constant_columns = true}),
            "heads  dtype   us  empty\n   16  bf16   1.0  -\n")
      << "one row has nothing to compare";
  d.tables[0].rows.push_back({std::int64_t{16}, "bf16", 2.0, Cell{}});
  EXPECT_EQ(render(d, Format::kTable, {.fold_constant_columns = true}),
            "heads 16, dtype bf16\n us\n1.0\n2.0\n");
  EXPECT_EQ(render(d, Format::kMarkdown, {.fold_constant_columns = true}),
            "heads 16, dtype bf16\n\n| us |\n| ---: |\n| 1.0 |\n| 2.0 |\n");
  d.tables[0].rows[1][2] = 1.0;
  EXPECT_EQ(render(d, Format::kTable, {.fold_constant_columns = true}),
            "dtype bf16, us 1.0\nheads\n   16\n   16\n")
      << "a table of equal rows keeps a column";
}

TEST(ReportText, PaintsOnlyWhenAsked) {
  Document d;
  d.tables.push_back({"t", "", {{"s", "status"}}, {{"PASS"}, {"FAIL"}}});
  EXPECT_EQ(render(d, Format::kTable).find('\x1b'), std::string::npos);
  EXPECT_EQ(render(d, Format::kTable, {.color = true}),
            "\x1b[1mstatus\x1b[0m\n\x1b[32mPASS\x1b[0m\n\x1b[31mFAIL\x1b[0m\n");
}

TEST(ReportText, TheAnswerIsRepeatedBelowWhatHasLeftTheScreen) {
  // A headline, four facts, a table of three rows (one with a line break) and a note: 15 lines with the blank ones.
  const auto ends = [](const RenderOptions& options) {
    return render(sample(), Format::kTable, options).ends_with("a note\n\nIt fits.\n");
  };
  EXPECT_FALSE(ends({}));
  EXPECT_FALSE(ends({.width = 80, .height = 24}));
  EXPECT_FALSE(ends({.width = 80, .height = 16}));
  EXPECT_TRUE(ends({.width = 80, .height = 15})) << "and the line of the prompt";
  EXPECT_TRUE(ends({.width = 8, .height = 24})) << "wrapped lines take more of it";
  Document wide = sample();
  wide.headline = {std::string(80, 'x'), std::string(81, 'x')};  // 17 lines, as one is wrapped
  const std::string plain = render(wide, Format::kTable, {.width = 80});
  EXPECT_EQ(render(wide, Format::kTable, {.width = 80, .height = 18}), plain);
  EXPECT_NE(render(wide, Format::kTable, {.width = 80, .height = 17}), plain);
  const RenderOptions coloured{.width = 80, .color = true};
  RenderOptions high = coloured;
  high.height = 18;
  EXPECT_EQ(render(wide, Format::kTable, high), render(wide, Format::kTable, coloured))
      << "colours take no room";
  EXPECT_EQ(render(sample(), Format::kJson, {.height = 1}), render(sample(), Format::kJson));
}

TEST(ReportCsv, QuotesByRfc4180AndKeepsEveryDigit) {
  Document d = sample();
  d.tables[0].rows[0][2] = 0.1;
  EXPECT_EQ(render(d, Format::kCsv),
            "name,bytes,time_us,ok\n"
            "\"a,\"\"b\"\"\",1234567,0.1,true\n"
            "\"x|y\nz\",-1000,nan,false\n"
            "größe 中,,inf,\n");
}

TEST(ReportCsv, FactsAreTheDataWhereThereIsNoTable) {
  Document d = sample();
  d.tables.clear();
  EXPECT_EQ(render(d, Format::kCsv), "key,value\ngpus,8\nshare,0.123456789\nok,true\nnone,\n");
}

TEST(ReportMarkdown, EscapesWhatWouldEndACell) {
  Document d = sample();
  d.facts.clear();
  EXPECT_EQ(render(d, Format::kMarkdown),
            "It fits.\n"
            "\n"
            "### Things\n\n"
            "| name | bytes | time us | ok |\n"
            "| --- | ---: | ---: | --- |\n"
            "| a,\"b\" | 1,234,567 | 1.2 | yes |\n"
            "| x\\|y<br>z | -1,000 | nan | no |\n"
            "| größe 中 | - | inf | - |\n"
            "\n"
            "a note\n");
}

TEST(ReportJson, LeavesOutWhatIsNotFiniteAndSaysSo) {
  EXPECT_EQ(render(sample(), Format::kJson), R"({
  "schema_version": 1,
  "kind": "test.sample",
  "headline": [
    "It fits."
  ],
  "facts": {
    "gpus": 8,
    "share": 0.123456789,
    "ok": true
  },
  "tables": {
    "rows": [
      {
        "name": "a,\"b\"",
        "bytes": 1234567,
        "time_us": 1.25,
        "ok": true
      },
      {
        "name": "x|y\nz",
        "bytes": -1000,
        "time_us_not_finite": "nan",
        "ok": false
      },
      {
        "name": "größe 中",
        "time_us_not_finite": "inf"
      }
    ]
  },
  "notes": [
    "a note"
  ]
}
)");
}

TEST(ReportJson, ReplacesBytesThatAreNoUtf8) {
  Document d;
  d.facts = {{"path", std::string("a\xff")}};
  EXPECT_NE(render(d, Format::kJson).find("\"a\xef\xbf\xbd\""), std::string::npos);
}

TEST(Report, RefusesDocumentsThatWouldShiftColumns) {
  Document d;
  d.tables.push_back({"t", "", {{"a", "a"}, {"b", "b"}}, {{std::int64_t{1}}}});
  expect_error([&] { return render(d, Format::kCsv); }, mla::ErrorCode::kInternal,
               {"'t'", "2 columns", "1 cells"});
  d.tables[0].rows.clear();
  d.tables.push_back(d.tables[0]);
  expect_error([&] { return render(d, Format::kJson); }, mla::ErrorCode::kInternal, {"two tables", "'t'"});
}

TEST(Report, EmptyTablesSayThatTheyAre) {
  Document d;
  d.tables.push_back({"t", "Title", {{"a", "a"}}, {}});
  EXPECT_EQ(render(d, Format::kTable), "Title\n(no rows)\n");
  EXPECT_EQ(render(d, Format::kCsv), "a\n");
}

TEST(ReportFormat, NamesAreThoseOfTheFlag) {
  EXPECT_EQ(parse_format("table"), Format::kTable);
  EXPECT_EQ(parse_format("json"), Format::kJson);
  EXPECT_EQ(parse_format("csv"), Format::kCsv);
  EXPECT_EQ(parse_format("md"), Format::kMarkdown);
  expect_error([] { return parse_format("xml"); }, mla::ErrorCode::kInvalidArgument, {"'xml'"});
}

TEST(ReportNumbers, Units) {
  EXPECT_EQ(human_gib(656), "656 B");
  EXPECT_EQ(human_gib(70272), "68.6 KiB");
  EXPECT_EQ(human_gib(1.13 * 0x1p30), "1.13 GiB");
  EXPECT_EQ(human_gib(1023.9 * 0x1p20), "1.00 GiB");
  EXPECT_EQ(human_gb(141e9), "141 GB");
  EXPECT_EQ(human_gb(999.6e6), "1.00 GB");
  EXPECT_EQ(human_gb(-28.3e9), "-28.3 GB");
  EXPECT_EQ(human_gb(0), "0 B");
  EXPECT_EQ(with_thousands(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(ReportWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("größe"), 5U);
  EXPECT_EQ(display_width("中文"), 4U);
  EXPECT_EQ(display_width("e\u0301"), 1U) << "a combining mark takes no column";
  EXPECT_EQ(display_width("\xf0\x9f\x9a\x80"), 2U) << "emoji";
  EXPECT_EQ(display_width("\xff\xc3"), 2U)
      << "malformed bytes count one each, and nothing is read past the end";
  EXPECT_EQ(truncate_to("größe", 4), "grö\u2026");
  EXPECT_EQ(truncate_to("中文字", 4), "中\u2026") << "half a wide character is not shown";
  EXPECT_EQ(truncate_to("abc", 0), "");
}

}  // namespace
