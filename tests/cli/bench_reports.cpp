// SPDX-License-Identifier: Apache-2.0
// compare, report and rerun, from files with known times.
#include <algorithm>

#include "../peers/python.hpp"
#include "bench_fixture.hpp"
#include "mla/backend.hpp"
#include "report/gnuplot.hpp"
#include "report/record.hpp"

namespace {

using mla::report::BenchRecord;
using mla::test::RunResult;

class BenchReports : public BenchTest {
 protected:
  void SetUp() override {
    BenchTest::SetUp();
    write_run("base", 100);
    write_run("same", 100.2);
    write_run("slow", 105);
  }
  static BenchRecord record(double us, const std::string& backend) {
    BenchRecord r;
    r.key = "decode head h2 l32 r16 p16 v16 q1s64 causal b64 q:f32 out:f32 cache:f32";
    r.backend = backend;
    r.device = "host";
    r.cache_state = "warm";
    r.timer = "wall";
    r.model = "custom";
    r.status = "ok";
    r.verified = "sample";
    r.time_us = us;
    r.seed = 1;
    for (int i = 0; i < 30; ++i) r.samples_us.push_back(us * (1 + 0.0002 * (i % 7)));
    return r;
  }
  void write_run(const std::string& name, double us) const {
    std::filesystem::create_directories(dir_ / name);
    write(name + "/run.jsonl",
          to_json_line(mla::report::Environment{name, {{"cpu", name}, {"command", "made " + name}}}) +
              to_json_line(record(us, "cpu-absorbed")) + to_json_line(record(2 * us, "cpu-expanded")));
  }

  /// "other/run.jsonl": times of another run, made by results/other_run.py from rows in its form.
  void write_other_run(const std::string& python, const std::string& rows) const {
    write(
        "theirs.json",
        R"({"device": "d", "what": "w", "versions": {"k": "1"}, "spread": "s", "ceilings": {"read_TBps": 4}, "rows": [)" +
            rows + "]}");
    const RunResult theirs =
        mla::test::run_program(python, {MLA_SOURCE_DIR "/results/other_run.py", "theirs.json", "other"},
                               {.directory = dir_.string()});
    ASSERT_EQ(theirs.exit_code, 0) << theirs.err;
  }
};

TEST_F(BenchReports, CompareFailsABuildOnlyWhenItShould) {
  EXPECT_EQ(bench({"compare", "base", "same"}).exit_code, 0);
  const RunResult slow = bench({"compare", "base", "slow"});
  EXPECT_EQ(slow.exit_code, 1) << slow.err;
  EXPECT_NE(slow.out.find("2 SLOWER"), std::string::npos) << slow.out;
  EXPECT_NE(slow.out.find("cpu differs: base -> slow"), std::string::npos) << slow.out;
  EXPECT_EQ(bench({"compare", "base", "slow", "--fail-on", "none"}).exit_code, 0);
  EXPECT_EQ(bench({"compare", "base", "slow", "--threshold", "10%"}).exit_code, 0);
  EXPECT_EQ(bench({"compare", "slow", "base"}).exit_code, 0);
  EXPECT_EQ(bench({"compare", "slow", "base", "--fail-on", "any"}).exit_code, 1);
  const RunResult md =
      bench({"compare", "base", "slow/run.jsonl", "--where", "backend=cpu-absorbed", "-o", "md"});
  EXPECT_NE(md.out.find("1 SLOWER"), std::string::npos) << md.out;
  EXPECT_NE(md.out.find("| change |"), std::string::npos) << md.out;
}

TEST_F(BenchReports, ErrorsOfEveryKind) {
  write("cut.jsonl", content(file("base/run.jsonl")).substr(0, 50) + "\n");
  write("empty.jsonl", "");
  std::filesystem::create_directories(dir_ / "nothing");
  const std::vector<std::pair<Args, std::string>> cases = {
      {{"compare", "base"}, "now"},
      {{"compare", "base", "missing"}, "missing"},
      {{"compare", "base", "cut.jsonl"}, "cut.jsonl line 1"},
      {{"compare", "base", "empty.jsonl"}, "no point in common"},
      {{"compare", "base", "nothing"}, "nothing"},
      {{"compare", "base", "same", "--threshold", "3"}, "'3'"},
      {{"compare", "base", "same", "--fail-on", "mood"}, "'mood'"},
      {{"compare", "base", "same", "--where", "kvv=3"}, "'kvv'"},
      {{"compare", "base", "same", "--where", "kv=3"}, "'kv=3'"},
      {{"report"}, "runs"},
      {{"report", "empty.jsonl"}, "no record"},
      {{"report", "base", "-o", "pdf"}, "csv, md, html, svg and png"},
      {{"report", "base", "-o", "svg", "--chart", "pie"}, "'pie'"},
      {{"report", "base", "-o", "svg", "--x", "nope"}, "'nope'"},
      {{"report", "base", "--x", "nope"}, "'nope'"},
      {{"report", "base", "--by", "backend,nope"}, "'nope'"},
      {{"report", "base", "-o", "csv", "--to", "base/run.jsonl"}, "exists"},
      {{"report", "base", "-o", "csv", "--to", "/nonexistent/x"}, "/nonexistent/x"},
      {{"report", "base", "-o", "csv", "--to", "/dev/full"}, "/dev/full"},
      {{"rerun", "base", "--row", "9"}, "row 9"},
      {{"rerun", "base", "--row", "0"}, "--row"},
      {{"rerun", "base", "--max-time", "9"}, "'9'"},
      {{"rerun", "base", "--fail-on", "mood"}, "'mood'"},
  };
  for (const auto& [args, says] : cases) {
    const RunResult r = bench(args);
    SCOPED_TRACE(args[0] + " " + (args.size() > 1 ? args[1] : "") + ": " + r.err);
    EXPECT_EQ(r.exit_code, 2);
    EXPECT_EQ(r.out, "");
    EXPECT_NE(r.err.find(says), std::string::npos) << says;
  }
}

TEST_F(BenchReports, ReportsInEveryFormat) {
  const RunResult table = bench({"report", "base", "same"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("cpu-absorbed is 2.00 times as fast as cpu-expanded"), std::string::npos)
      << table.out;
  EXPECT_EQ(lines(bench({"report", ".", "-o", "csv"}).out).size(), 1U + 6U) << "a folder of runs";
  EXPECT_EQ(lines(bench({"report", "base", "--where", "backend=cpu-expanded", "-o", "csv"}).out).size(), 2U);
  ASSERT_EQ(bench({"report", "base", "-o", "html", "--to", "page.html"}).exit_code, 0);
  const std::string page = content(file("page.html"));
  EXPECT_NE(page.find("made base"), std::string::npos);
  EXPECT_TRUE(page.ends_with("</html>\n"));
  if (!mla::report::have_gnuplot()) GTEST_SKIP() << "gnuplot is not installed: no svg and png";
  EXPECT_NE(bench({"report", "base", "-o", "svg"}).out.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("data:image/svg+xml;base64,"), std::string::npos);
  ASSERT_EQ(bench({"report", "base", "-o", "png", "--to", "a.png", "--facet", "none"}).exit_code, 0);
  EXPECT_TRUE(content(file("a.png")).starts_with("\x89PNG"));
}

TEST_F(BenchReports, WithoutGnuplotTablesAndThePageStillWork) {
  const mla::test::RunOptions nowhere{.env = {{"PATH", "/nonexistent"}}};
  const RunResult svg = bench({"report", "base", "-o", "svg"}, nowhere);
  EXPECT_EQ(svg.exit_code, 3) << svg.err;
  EXPECT_NE(svg.err.find("gnuplot-nox"), std::string::npos) << svg.err;
  const RunResult html = bench({"report", "base", "-o", "html"}, nowhere);
  EXPECT_EQ(html.exit_code, 0) << html.err;
  EXPECT_NE(html.out.find("gnuplot-nox"), std::string::npos);
  EXPECT_EQ(bench({"report", "base"}, nowhere).exit_code, 0);
}

TEST_F(BenchReports, TheScriptOfResultsMakesFolderAndPagesAndGoesOn) {
  const auto script = [&](const std::string& limit) {
    return mla::test::run_program(
        "/bin/bash",
        {std::string(MLA_TEST_DATA) + "/../results/measure.sh",
         "out",
         "--gpu",
         "none",
         "--backend",
         "cpu-absorbed",
         "--model",
         "deepseek-v2-lite",
         "--heads",
         "2,4",
         "--requests",
         "1",
         "--kv",
         "64",
         "--noise",
         "50%",
         "--min-time",
         "1ms",
         "--max-time",
         "100ms"},
        {.env = {{"MLA_BENCH", MLA_BENCH}, {"SWEEPS", "heads page"}, {"LIMIT", limit}},
         .directory = dir_.string()});
  };
  const RunResult late = script("0");
  EXPECT_EQ(late.exit_code, 130) << late.err;
  EXPECT_NE(late.err.find("heads: no time is left for it"), std::string::npos) << late.err;
  const RunResult r = script("100");
  ASSERT_EQ(r.exit_code, 0) << r.err << r.out;
  const auto records = [&](const char* sweep) {
    return mla::report::read_run(file(std::string("out/") + sweep + "/run.jsonl")).records.size();
  };
  EXPECT_EQ(records("heads"), 2U);
  EXPECT_EQ(records("page"), 12U);
  for (const char* sweep : {"heads", "page"}) {
    const std::string page = content(file(std::string("out/") + sweep + ".html"));
    EXPECT_NE(page.find("</html>"), std::string::npos);
    EXPECT_NE(page.find(std::string(sweep) == "page" ? "Does the page size matter?" : "number of heads"),
              std::string::npos)
        << "the question of the sweep";
  }
  EXPECT_EQ(script("100").exit_code, 0) << "again: nothing is missing, the pages are made anew";
  EXPECT_EQ(records("page"), 12U);
}

TEST_F(BenchReports, TheScriptOfARecordMeasuresTwiceComparesAndTunes) {
  const RunResult r =
      mla::test::run_program("/bin/bash",
                             {std::string(MLA_TEST_DATA) + "/../results/record.sh",
                              "out",
                              "--gpu",
                              "none",
                              "--backend",
                              "cpu-absorbed,cpu-expanded",
                              "--model",
                              "deepseek-v2-lite",
                              "--heads",
                              "2",
                              "--batch",
                              "1q1s64",
                              "--space",
                              "head",
                              "--window",
                              "full",
                              "--noise",
                              "50%",
                              "--min-time",
                              "1ms",
                              "--min-samples",
                              "7",
                              "--max-time",
                              "100ms"},
                             {.env = {{"MLA_BENCH", MLA_BENCH}, {"SWEEPS", "regression"}, {"LIMIT", "100"}},
                              .directory = dir_.string()});
  ASSERT_EQ(r.exit_code, 0) << r.err << r.out;
  EXPECT_NE(r.err.find("compared with a second run: exit code"), std::string::npos) << r.err;
  EXPECT_EQ(mla::report::read_run(file("out/regression/run.jsonl")).records.size(), 6U) << "three processes";
  EXPECT_EQ(mla::report::read_run(file("out-again/regression/run.jsonl")).records.size(), 4U) << "two";
  EXPECT_NE(content(file("out/again.md")).find("2 points:"), std::string::npos);
  EXPECT_NE(content(file("out/selector.json")).find("\"shape\""), std::string::npos);
  const std::string page = content(file("out/README.md"));
  for (const char* part :
       {"# out", "## regression", "Did anything get slower", "| batch | cpu-absorbed | cpu-expanded |",
        "mla-bench report regression --pivot", "## Twice the same", "2 points:"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  }
}

TEST_F(BenchReports, TheWordsOfResultsAreThoseOfARecord) {
  const std::string python = mla::test::python_with("");
  if (python.empty()) GTEST_SKIP() << "no Python 3";
  const std::string results = std::string(MLA_SOURCE_DIR) + "/results";
  write_other_run(python, R"({"heads": 16, "q_len": 1, "batch": 32, "kv_len": 4096, "k_us": 28.35})");
  const mla::report::RunFile other = mla::report::read_run(file("other/run.jsonl"));
  ASSERT_EQ(other.records.size(), 1U);
  EXPECT_EQ(other.records[0].backend, "k (another run)");
  EXPECT_EQ(other.records[0].flags, std::vector<std::string>{"another-run"});
  // By hand from the record: 51.3 / 20.7 and 192194 / 1128 at the ends; 42.91 us at that shape, 1.5 times theirs.
  const RunResult words = mla::test::run_program(
      python, {results + "/words.py", results + "/h200/2026-12-01-all", file("other/run.jsonl")});
  ASSERT_EQ(words.exit_code, 0) << words.err;
  std::string text = words.out;
  std::ranges::replace(text, '\n', ' ');
  for (const char* part :
       {"2.5 to 170 times as fast", "| 32q1s4k | 16 | 54.9 | 70.1 | 236 | 1291 |", "of 64k keys all take 547",
        "k 0.66 with 16 heads (1 shapes", "| 16 | 32q1s9k | 84.6 | 65.8 | 57.4 | 57.5 |"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << words.out;
  }
}

TEST_F(BenchReports, OneRecordIsSetBesideAnother) {
  const std::string python = mla::test::python_with("");
  if (python.empty()) GTEST_SKIP() << "no Python 3";
  const std::string results = std::string(MLA_SOURCE_DIR) + "/results";
  write_other_run(python,
                  R"({"heads": 16, "q_len": 1, "batch": 32, "kv_len": 4096, "k_us": 85.82, "j_us": 90},
             {"heads": 128, "q_len": 1, "batch": 128, "kv_len": 65536, "k_us": 2135.9})");
  const RunResult r = mla::test::run_program(
      python,
      {results + "/against.py", results + "/h200/2026-12-01-all/decode/run.jsonl", file("other/run.jsonl")});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  // 85.82 / 42.91 and 2135.9 / 4271.7: twice as fast and half as fast, one in the geometric mean.
  for (const char* part :
       {"2 shapes.", "| all | 2 | 1.00 | 0.50 | 1 | 1 |", "| up to 16 rows | 1 | 2.00 | 2.00 | 0 | 0 |",
        "| 128 rows | 1 | 0.50 | 0.50 | 1 | 1 |", "| 128, 128 x q1 x 64k | 4271.7"}) {
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  }
}

TEST_F(BenchReports, ARerunThatCanMeasureNothingDoesNotPass) {
  std::filesystem::create_directories(dir_ / "gpu");
  write("gpu/run.jsonl", to_json_line(mla::report::Environment{"gpu", {{"cpu", "x"}}}) +
                             to_json_line(record(100, "cuda-naive")));
  const RunResult r = bench({"rerun", "gpu", "--gpu", "none", "--out", "none"});
  EXPECT_EQ(r.exit_code, mla::find_backend("cuda-naive") != nullptr ? 3 : 2) << r.out << r.err;
  EXPECT_NE(r.err.find(r.exit_code == 3 ? "none of the 1 points can be measured here: it needs a GPU"
                                        : "cuda-naive"),
            std::string::npos)
      << r.err;
  EXPECT_EQ(r.out, "");
}

TEST_F(BenchReports, RerunMeasuresTheSamePointsAgain) {
  const RunResult one =
      bench({"rerun", "base", "--row", "2", "--max-time", "200ms", "--fail-on", "none", "--out", "again"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const mla::report::RunFile again = mla::report::read_run(file("again/run.jsonl"));
  ASSERT_EQ(again.records.size(), 1U);
  EXPECT_EQ(mla::report::identity(again.records[0]), mla::report::identity(record(1, "cpu-expanded")));
  // The recorded times are invented: whatever this machine says, it is not 100 us within 3 %, nor 1e9 times
  // that. As few samples as have an interval are enough, and a busy machine may take its time over them.
  write_run("absurd", 1e12);
  const RunResult faster =
      bench({"rerun", "absurd", "--noise", "100%", "--max-time", "1min", "--fail-on", "any"});
  EXPECT_EQ(faster.exit_code, 1) << faster.err;
  EXPECT_NE(faster.out.find("2 FASTER"), std::string::npos) << faster.out;
  write_run("tiny", 1e-6);
  EXPECT_EQ(bench({"rerun", "tiny", "--noise", "100%", "--max-time", "1min"}).exit_code, 1) << "slower";
}

}  // namespace
