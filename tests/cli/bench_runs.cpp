// SPDX-License-Identifier: Apache-2.0
// Runs, their records, what goes to which stream, interrupting and resuming.
#include <algorithm>
#include <csignal>

#include "../peers/python.hpp"
#include "bench_fixture.hpp"
#include "report/record.hpp"

namespace {

using mla::report::RunFile;
using mla::test::RunResult;

class BenchRuns : public BenchTest {};

TEST_F(BenchRuns, KeepsRecordsAndPrintsATable) {
  const RunResult r = bench(small_run({"--out", "a"}));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "") << "no progress on a pipe";
  EXPECT_EQ(r.out.find('\x1b'), std::string::npos) << "no colour on a pipe";
  for (const char* part : {"2 points measured", "cpu-absorbed", "cpu-expanded", "time us", "of floor",
                           "a/run.jsonl", "ceilings"}) {
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  }
  EXPECT_NE(r.out.find("heads 2"), std::string::npos) << "columns that never change stand above the table";
  const RunFile run = mla::report::read_run(file("a/run.jsonl"));
  ASSERT_EQ(run.environments.size(), 1U);
  ASSERT_EQ(run.records.size(), 2U);
  for (const auto& record : run.records) {
    EXPECT_EQ(record.status, "ok") << record.reason;
    EXPECT_EQ(record.env, run.environments[0].id);
    EXPECT_GT(*record.time_us, 0);
    EXPECT_EQ(record.samples_us.size(), static_cast<std::size_t>(record.n));
    EXPECT_EQ(record.verified, "sample");
  }
}

TEST_F(BenchRuns, TheCommandOfARecordMeasuresThatPoint) {
  ASSERT_EQ(bench(small_run({"--out", "a"})).exit_code, 0);
  const RunFile run = mla::report::read_run(file("a/run.jsonl"));
  const std::string tail = run.records.at(0).command.substr(std::string("mla-bench").size());
  const RunResult again =
      mla::test::run_program("/bin/bash", {"-c", std::string("'") + MLA_BENCH + "'" + tail + " --out b"},
                             {.directory = dir_.string()});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const RunFile second = mla::report::read_run(file("b/run.jsonl"));
  ASSERT_EQ(second.records.size(), 1U);
  EXPECT_EQ(mla::report::identity(second.records[0]), mla::report::identity(run.records[0]));
}

TEST_F(BenchRuns, FormatsForPrograms) {
  const RunResult as_json = bench(small_run({"--out", "none", "-o", "json"}));
  ASSERT_EQ(as_json.exit_code, 0) << as_json.err;
  const mla::json::Value root = json(as_json.out);
  const auto* points = root.find("tables")->find("points")->get_if<mla::json::Array>();
  ASSERT_EQ(points->size(), 2U);
  EXPECT_NE(points->front().find("time_low_us"), nullptr);
  const RunResult as_csv = bench(small_run({"--out", "none", "-o", "csv"}));
  EXPECT_EQ(lines(as_csv.out).size(), 3U);
  EXPECT_TRUE(as_csv.out.starts_with("key,backend,phase,")) << as_csv.out;
  const RunResult as_md = bench(small_run({"--out", "none", "-o", "md"}));
  EXPECT_NE(as_md.out.find("| --- |"), std::string::npos);
  EXPECT_NE(bench({"list", "axes", "--color", "always"}).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(bench({"list", "axes"}, {.env = {{"TERM", "xterm"}}}).out.find('\x1b'), std::string::npos);
}

TEST_F(BenchRuns, TheDefaultFolderIsNeverUsedTwice) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(bench(small_run({"--filter", "absorbed"})).exit_code, 0);
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "results" / "host")) {
    folders.push_back(entry.path().filename().string());
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "run.jsonl"));
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "spec.json"));
  }
  ASSERT_EQ(folders.size(), 2U);
  std::ranges::sort(folders);
  EXPECT_EQ(folders[0] + "-2", folders[1]);
}

TEST_F(BenchRuns, AnInterruptKeepsWhatIsFinishedAndResumeCompletesIt) {
  const Args args{"run",
                  "--backend",
                  "cpu-absorbed",
                  "--dims",
                  "h2/l32/r16/p16/v16",
                  "--kv",
                  "64..69",
                  "--dtype",
                  "f32",
                  "--cache",
                  "f32",
                  "--caches",
                  "warm",
                  "--noise",
                  "0.0001%",
                  "--max-samples",
                  "100000",
                  "--min-time",
                  "200ms",
                  "--max-time",
                  "300ms",
                  "--out",
                  "a"};
  const std::string path = file("a/run.jsonl");
  const RunResult r = bench(args, {.on_tick = [&](pid_t child) {
                              if (lines(content(path)).size() < 3) return true;  // environment and two points
                              kill(child, SIGINT);
                              return false;
                            }});
  EXPECT_EQ(r.exit_code, 130) << r.err;
  EXPECT_NE(r.err.find("interrupted after"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("--resume --out a"), std::string::npos) << r.err;
  EXPECT_NE(r.out.find("points measured"), std::string::npos) << "the part that is done is shown";
  const RunFile part = mla::report::read_run(path);
  EXPECT_TRUE(part.warnings.empty());
  EXPECT_GE(part.records.size(), 2U);
  EXPECT_LT(part.records.size(), 6U);

  const RunResult rest = bench({"run", "--resume", "--out", "a"});
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  const RunFile whole = mla::report::read_run(path);
  ASSERT_EQ(whole.records.size(), 6U);
  EXPECT_EQ(whole.environments.size(), 2U);
  for (std::size_t i = 0; i < part.records.size(); ++i)
    EXPECT_EQ(whole.records[i], part.records[i]) << "kept as they were";
  const RunResult nothing = bench({"run", "--resume", "--out", "a"});
  EXPECT_EQ(nothing.exit_code, 0) << nothing.err;
  EXPECT_EQ(mla::report::read_run(path).records.size(), 6U);
}

TEST_F(BenchRuns, AKillLosesAtMostThePointInFlight) {
  const std::string path = file("a/run.jsonl");
  Args args = small_run({"--out", "a"});
  args[6] = "64..90";  // --kv
  const RunResult r = bench(args, {.on_tick = [&](pid_t child) {
                              if (lines(content(path)).size() < 4) return true;
                              kill(child, SIGKILL);
                              return false;
                            }});
  EXPECT_EQ(r.exit_code, 128 + SIGKILL);
  const std::size_t kept = mla::report::read_run(path).records.size();
  EXPECT_GE(kept, 3U);
  EXPECT_EQ(bench({"run", "--resume", "--out", "a"}).exit_code, 0);
  EXPECT_EQ(mla::report::read_run(path).records.size(), 2U * 27U);
}

TEST_F(BenchRuns, SpecsPrintWithOriginsAndReadBack) {
  const RunResult printed = bench(small_run({"--print-spec"}));
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_NE(printed.out.find("\"kv\": \"64\",  // --kv"), std::string::npos) << printed.out;
  EXPECT_NE(printed.out.find("// default"), std::string::npos);
  const RunResult dry = bench({"run", "--spec", "-", "--dry-run", "-o", "json"}, {.stdin_text = printed.out});
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_EQ(json(dry.out).find("tables")->find("points")->get_if<mla::json::Array>()->size(), 2U);
  EXPECT_TRUE(std::filesystem::is_empty(dir_)) << "a dry run writes nothing";
}

TEST_F(BenchRuns, DryRunSaysWhyAPointWouldNotRun) {
  const RunResult dry =
      bench({"run", "--backend", "cpu-expanded,cpu-absorbed", "--dims", "h2/l32/r16/p16/v16", "--kv", "64",
             "--space", "latent", "--dry-run", "-o", "csv"});
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_NE(dry.out.find(",false,"), std::string::npos) << dry.out;
  EXPECT_NE(dry.out.find(",true,"), std::string::npos) << dry.out;
}

TEST_F(BenchRuns, DryRunsWorkForAGpuThatIsOnlyDescribed) {
  const Args args{"run",    "--device",   "h200", "--heads", "16",         "--space",
                  "latent", "--requests", "32",   "--kv",    "1k,64k,16m", "--dry-run"};
  const RunResult dry = bench(args);
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_NE(dry.out.find("run on NVIDIA H200"), std::string::npos) << dry.out;
  EXPECT_NE(dry.out.find("; it takes about "), std::string::npos) << dry.out;
  // 32 x 16 Mi rows of 1,152 B are 576 GiB, 618 GB; the backends of this build say it, or the model where there are none.
  EXPECT_TRUE(dry.out.find("its inputs need about 576 GiB of GPU memory") != std::string::npos ||
              dry.out.find("cache of 618 GB does not fit") != std::string::npos)
      << dry.out;
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(BenchRuns, ASharedPrefixIsCountedOnceAndComputedForEach) {
  const auto points = [this](std::vector<std::string> more) {
    Args args{"run",  "--dims", "h2/l32/r16/p16/v16", "--space",      "latent",    "--requests", "4",
              "--kv", "256",    "--backend",          "cpu-absorbed", "--dry-run", "-o",         "json"};
    args.insert(args.end(), more.begin(), more.end());
    const RunResult dry = bench(args);
    EXPECT_EQ(dry.exit_code, 0) << dry.err;
    return *json(dry.out).find("tables")->find("points")->get_if<mla::json::Array>();
  };
  const auto number = [](const mla::json::Value& point, const char* key) {
    const mla::json::Value* value = point.find(key);
    const auto* real = value->get_if<mla::json::Real>();
    return real != nullptr ? real->value : static_cast<double>(*value->get_if<std::int64_t>());
  };
  const auto both = points({"--shared-prefix", "0,192"});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(number(both[0], "bytes") - number(both[1], "bytes"), 3 * 192 * 96) << "rows of 48 x 2 bytes";
  EXPECT_EQ(number(both[0], "flops"), number(both[1], "flops"));
  const RunResult run = bench({"run",
                               "--dims",
                               "h2/l32/r16/p16/v16",
                               "--space",
                               "latent",
                               "--requests",
                               "4",
                               "--kv",
                               "256",
                               "--backend",
                               "cpu-absorbed",
                               "--shared-prefix",
                               "192",
                               "--prefix-reads",
                               "once,each",
                               "--invariant",
                               "yes",
                               "--max-time",
                               "20ms",
                               "--verify",
                               "full",
                               "-o",
                               "csv"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find(",invariant prefix-once,"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(",invariant prefix-each,"), std::string::npos) << run.out;
}

TEST_F(BenchRuns, RowsAreExplainedByASentenceAndByArithmetic) {
  const RunResult r = bench(small_run({"--out", "a", "--explain", "--formulas"}));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  for (const char* part : {"bound by", "why it takes what it takes", "64 rows x 192 B",
                           "2 x 2 heads x 64 pairs", "ceilings measured in the same run"}) {
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  }
  const RunResult again = bench({"report", "a", "--formulas"});
  EXPECT_NE(again.out.find("64 rows x 192 B"), std::string::npos) << again.out;
  const RunResult pivot = bench({"report", "a", "--pivot", "--facet", "none", "-o", "csv"});
  EXPECT_EQ(lines(pivot.out).at(0), "kv,cpu-absorbed,cpu-expanded");
  EXPECT_TRUE(lines(pivot.out).at(1).starts_with("64,")) << pivot.out;
}

TEST_F(BenchRuns, GoogleBenchmarksJsonIsThereForItsCompare) {
  const RunResult r = bench(small_run({"--out", "none", "--gbench-json", "gb.json", "--repetitions", "2"}));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const mla::json::Value root = json(content(file("gb.json")));
  const auto* entries = root.find("benchmarks")->get_if<mla::json::Array>();
  ASSERT_NE(entries, nullptr);
  EXPECT_EQ(entries->size(), 4U);
  const std::string name = *entries->front().find("name")->get_if<std::string>();
  EXPECT_TRUE(name.starts_with("cpu-")) << name;
  EXPECT_EQ(name.find(' '), std::string::npos) << name;
}

TEST_F(BenchRuns, ListsSayWhatThereIs) {
  for (const char* what : {"backends", "devices", "models", "gpus", "specs", "axes"}) {
    const RunResult table = bench({"list", what});
    EXPECT_EQ(table.exit_code, 0) << what << table.err;
    EXPECT_GE(lines(table.out).size(), 2U) << what;
    const RunResult names = bench({"list", what, "--names"});
    EXPECT_EQ(lines(names.out).size() + 1, lines(bench({"list", what, "-o", "csv"}).out).size()) << what;
  }
  const RunResult explained =
      bench({"list", "backends", "--explain",
             "decode latent h2 l32 r16 p16 v16 1q1s64 q:f32 out:f32 cache:f32", "-o", "json"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  bool saw_no = false;
  bool saw_yes = false;
  const mla::json::Value answer = json(explained.out);  // outlives the loop over its parts
  for (const mla::json::Value& row : *answer.find("tables")->find("backends")->get_if<mla::json::Array>()) {
    const bool supported = *row.find("supported")->get_if<bool>();
    saw_yes = saw_yes || supported;
    if (supported) continue;
    saw_no = true;
    ASSERT_NE(row.find("reason"), nullptr);
    EXPECT_FALSE(row.find("reason")->get_if<std::string>()->empty());
  }
  EXPECT_TRUE(saw_no && saw_yes) << explained.out;
  // A described GPU is asked with the times measured on a real one.
  const RunResult measured =
      bench({"list", "backends", "--explain", "decode head h20 128q1s9k", "--gpu", "h200"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_NE(measured.out.find("measured nearest to it: decode head h16"), std::string::npos) << measured.out;
  EXPECT_NE(measured.out.find("us there"), std::string::npos) << measured.out;
}

TEST_F(BenchRuns, HelpFitsAScreenAndVersionIsJsonToo) {
  for (const Args& args : {Args{"-h"}, Args{"run", "-h"}, Args{"list", "-h"}}) {
    const RunResult r = bench(args);
    EXPECT_EQ(r.exit_code, 0);
    EXPECT_EQ(r.err, "");
    EXPECT_LE(lines(r.out).size(), 30U) << r.out;
    EXPECT_NE(r.out.find("--help"), std::string::npos);
  }
  const RunResult all = bench({"--help"});
  for (const char* part : {"--block-size", "--noise", "--explain", "exit codes"}) {
    EXPECT_NE(all.out.find(part), std::string::npos) << part;
  }
  EXPECT_TRUE(bench({"--version"}).out.starts_with("mla-bench "));
  EXPECT_EQ(*json(bench({"--version", "--json"}).out).find("facts")->find("program")->get_if<std::string>(),
            "mla-bench");
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_NE(bench({"--completion", shell}).out.find("block-size"), std::string::npos) << shell;
  }
  const RunResult syntax = mla::test::run_program("/bin/bash", {"-n", "/dev/stdin"},
                                                  {.stdin_text = bench({"--completion", "bash"}).out});
  EXPECT_EQ(syntax.exit_code, 0) << syntax.err;
  EXPECT_TRUE(bench({"--man"}).out.starts_with(".TH MLA\\-BENCH"));
}

TEST_F(BenchRuns, FindsWhereOneBackendOvertakesAnother) {
  const Args base{"run",
                  "--backend",
                  "cpu-absorbed,cpu-expanded",
                  "--dims",
                  "h2/l32/r16/p16/v16",
                  "--dtype",
                  "f32",
                  "--cache",
                  "f32",
                  "--noise",
                  "50%",
                  "--min-time",
                  "1ms",
                  "--max-time",
                  "200ms",
                  "--caches",
                  "warm"};
  Args found = base;
  found.insert(found.end(), {"--kv", "16..256:x4", "--find-crossover", "kv", "--out", "x", "-o", "json"});
  const RunResult r = bench(found);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const mla::json::Value root = json(r.out);
  ASSERT_NE(root.find("facts")->find("found"), nullptr);
  const auto& points = *root.find("tables")->find("points")->get_if<mla::json::Array>();
  EXPECT_GE(points.size(), 2U);
  EXPECT_EQ(*points.front().find("kv")->get_if<std::int64_t>(), 16);
  EXPECT_EQ(*points.back().find("kv")->get_if<std::int64_t>(), 256);
  EXPECT_EQ(mla::report::read_run(file("x/run.jsonl")).records.size(), 2 * points.size())
      << "every point is kept";
  const std::vector<std::pair<Args, std::string>> wrong = {
      {{"--kv", "64", "--find-crossover", "kv"}, "64..64"},
      {{"--kv", "16..64:x4", "--find-crossover", "cache"}, "'cache'"},
      {{"--kv", "16..64:x4", "--find-crossover", "kv", "--heads", "1,2"}, "4 points"},
      {{"--kv", "16..64:x4", "--find-crossover", "kv", "--dry-run"}, "--dry-run"}};
  for (const auto& [more, says] : wrong) {
    Args args = base;
    args.insert(args.end(), more.begin(), more.end());
    const RunResult refused = bench(args);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.err.find(says), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(dir_ / "results"));
  }
}

TEST_F(BenchRuns, APluginIsMeasuredBesideTheBuiltIn) {
  const std::string plugin = std::string(MLA_PLUGINS) + "/naive.so";
  const RunResult r = bench({"run",
                             "--plugin",
                             plugin,
                             "--backend",
                             "cpu-absorbed,naive",
                             "--dims",
                             "h2/l32/r16/p16/v16",
                             "--kv",
                             "64",
                             "--space",
                             "latent",
                             "--dtype",
                             "f32",
                             "--cache",
                             "f32",
                             "--min-time",
                             "1ms",
                             "--noise",
                             "50%",
                             "--max-time",
                             "200ms",
                             "--out",
                             "p"});
  ASSERT_EQ(r.exit_code, 0) << r.err << r.out;
  const RunFile run = mla::report::read_run(file("p/run.jsonl"));
  ASSERT_EQ(run.records.size(), 2U);
  for (const auto& record : run.records) {
    EXPECT_EQ(record.status, "ok") << record.reason;
    EXPECT_EQ(record.origin, record.backend == "naive" ? "plug-in 1.0 (naive.so)" : "");
  }
  EXPECT_NE(bench({"list", "backends", "--plugin", plugin}).out.find("plug-in 1.0"), std::string::npos);
  const RunResult wrong = bench({"run", "--plugin", std::string(MLA_PLUGINS) + "/WRONG_RESULT.so",
                                 "--backend", "broken", "--dims", "h2/l32/r16/p16/v16", "--kv", "64",
                                 "--space", "latent", "--dtype", "f32", "--cache", "f32", "--out", "none"});
  EXPECT_EQ(wrong.exit_code, 1) << "a wrong result is no time";
  EXPECT_NE(wrong.out.find("1 wrong"), std::string::npos) << wrong.out;
  EXPECT_EQ(bench({"list", "backends", "--plugin", "/nonexistent.so"}).exit_code, 2);
}

TEST_F(BenchRuns, APeerIsMeasuredBesideTheBuiltIn) {
  const std::string python = mla::test::python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "no Python 3 with numpy was found";
  const std::string peer = python + " " + MLA_SOURCE_DIR + "/peers/numpy_mla.py";
  const RunResult r = bench(small_run({"--peer", peer, "--out", "a"}));
  ASSERT_EQ(r.exit_code, 0) << r.err << r.out;
  const RunFile run = mla::report::read_run(file("a/run.jsonl"));
  ASSERT_EQ(run.records.size(), 3U);
  const auto& record = *std::ranges::find(run.records, "peer:" + peer, &mla::report::BenchRecord::backend);
  EXPECT_EQ(record.status, "ok") << record.reason;
  EXPECT_EQ(record.verified, "sample");
  EXPECT_EQ(record.origin, "peer");
  EXPECT_GT(*record.time_us, 0);
  EXPECT_EQ(record.samples_us.size(), static_cast<std::size_t>(record.n));
  EXPECT_GT(*record.of_floor, 0);
  // A peer that gives wrong results gets no time; one that is not there is a usage error.
  EXPECT_EQ(bench(small_run({"--peer", "./none.py", "--out", "none"})).exit_code, 2);
}

TEST_F(BenchRuns, TuneWritesWhatTheSelectorReads) {
  Args args = small_run({"--out", "a"});
  std::ranges::replace(args, "warm", "cold");
  ASSERT_EQ(bench(args).exit_code, 0);
  const RunResult tuned = bench({"tune", "a", "--to", "table.json", "-o", "json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const RunFile run = mla::report::read_run(file("a/run.jsonl"));
  const auto fastest =
      std::ranges::min_element(run.records, {}, [](const mla::report::BenchRecord& r) { return *r.time_us; });
  EXPECT_NE(tuned.out.find("\"best\": \"" + fastest->backend + "\""), std::string::npos) << tuned.out;
  const RunResult listed =
      bench({"list", "backends", "--explain", fastest->key, "--selector", "table.json", "-o", "csv"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_NE(listed.out.find(fastest->backend + "," + fastest->strategy + ",true,true,true"),
            std::string::npos)
      << listed.out;
  EXPECT_EQ(bench({"tune", "a", "--to", "table.json"}).exit_code, 2) << "nothing is overwritten";
  EXPECT_EQ(bench({"tune", "a", "--where", "caches=warm"}).exit_code, 2) << "nothing to choose from";
  EXPECT_EQ(bench({"list", "models", "--selector", "table.json"}).exit_code, 2);
}

TEST_F(BenchRuns, DescribedGpusAreModelledAndSaidToBe) {
  const RunResult r =
      bench({"run", "--device", "h200", "--model", "deepseek-v3", "--batch", "1q1s4k,64q1s4k", "-o", "csv"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(lines(r.out).size(), 1U + 4U);
  for (const std::string& line : lines(r.out)) {
    EXPECT_TRUE(line.starts_with("key,") || line.find(",modelled,") != std::string::npos) << line;
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_)) << "kept only where the user says";
  const RunResult people = bench({"run", "--device", "h200", "--batch", "1q1s4k"});
  EXPECT_NE(people.out.find("2 points modelled, none measured"), std::string::npos) << people.out;
  EXPECT_EQ(bench({"run", "--device", "h20"}).exit_code, 0);
  const RunResult unknown = bench({"run", "--device", "h201"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("h201"), std::string::npos) << unknown.err;
  EXPECT_EQ(bench({"run", "--device", "h200", "--backend", "cpu-absorbed"}).exit_code, 2);
  EXPECT_EQ(bench({"run", "--device", "h200", "--dtype", "f64"}).exit_code, 3) << "no such peak";
}

}  // namespace
