// SPDX-License-Identifier: Apache-2.0
// A run of several processes: what each leaves, what an interrupt and a kill lose, what is refused.
#include <algorithm>
#include <csignal>
#include <set>

#include "bench_fixture.hpp"
#include "report/record.hpp"

namespace {

using mla::report::BenchRecord;
using mla::report::RunFile;
using mla::test::RunResult;

class BenchProcesses : public BenchTest {
 protected:
  [[nodiscard]] RunFile records() const { return mla::report::read_run(file("a/run.jsonl")); }
  /// Ten points, three times.
  [[nodiscard]] static Args long_run() {
    Args args = small_run({"--processes", "3", "--out", "a"});
    args[6] = "64..68";  // --kv
    return args;
  }
  /// Every point once in each of three processes.
  static void expect_whole(const RunFile& run, std::size_t points) {
    ASSERT_EQ(run.records.size(), 3 * points);
    std::set<std::string> seen;
    for (const BenchRecord& r : run.records) {
      EXPECT_EQ(r.status, "ok") << r.reason;
      EXPECT_TRUE(seen.insert(mla::report::identity(r) + std::to_string(r.repetition)).second);
    }
  }
};

TEST_F(BenchProcesses, EachMeasuresAllOfItAndTheTableHasARowAPoint) {
  const RunResult r = bench(small_run({"--processes", "3", "--out", "a"}));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  const RunFile run = records();
  expect_whole(run, 2);
  ASSERT_EQ(run.environments.size(), 3U);
  std::set<std::string> ids;
  for (const auto& environment : run.environments) {
    EXPECT_TRUE(ids.insert(environment.id).second) << "a process is its own environment";
    EXPECT_EQ(environment.facts.at(0).first, "command");
    EXPECT_EQ(environment.facts.at(0).second, run.environments[0].facts.at(0).second)
        << "what the user typed, in all of them";
  }
  for (std::size_t i = 0; i < run.records.size(); ++i) {
    EXPECT_EQ(run.records[i].repetition, static_cast<std::int64_t>(i / 2));
    EXPECT_EQ(run.records[i].verified, i < 2 ? "sample" : "earlier");
    EXPECT_EQ(run.records[i].env, run.environments[i / 2].id);
  }
  EXPECT_NE(r.out.find("2 points measured"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("runs 3"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("ceilings"), std::string::npos) << r.out;
  EXPECT_NE(bench({"run", "--resume", "--out", "a", "-q"}).out.find("2 points measured"), std::string::npos);
  EXPECT_EQ(records().records.size(), 6U) << "nothing was missing";
}

TEST_F(BenchProcesses, AnInterruptReachesTheProcessAndResumeCompletesTheRun) {
  const std::string path = file("a/run.jsonl");
  const RunResult r = bench(long_run(), {.on_tick = [&](pid_t child) {
                              if (lines(content(path)).size() < 13) return true;  // the second has begun
                              kill(child, SIGINT);
                              return false;
                            }});
  EXPECT_EQ(r.exit_code, 130) << r.err;
  EXPECT_NE(r.err.find("of 30 points; continue with: mla-bench run --resume --out a"), std::string::npos)
      << r.err;
  const std::size_t kept = records().records.size();
  EXPECT_GE(kept, 11U);
  EXPECT_LT(kept, 30U);
  EXPECT_EQ(bench({"run", "--resume", "--out", "a"}).exit_code, 0);
  expect_whole(records(), 10);
}

TEST_F(BenchProcesses, AKillEndsTheProcessTooAndLosesAtMostThePointInFlight) {
  const std::string path = file("a/run.jsonl");
  const RunResult r = bench(long_run(), {.on_tick = [&](pid_t child) {
                              if (lines(content(path)).size() < 5) return true;
                              kill(child, SIGKILL);
                              return false;
                            }});
  EXPECT_EQ(r.exit_code, 128 + SIGKILL);
  EXPECT_EQ(bench({"run", "--resume", "--out", "a"}).exit_code, 0);
  // Two that wrote at once would have measured a point twice.
  expect_whole(records(), 10);
}

TEST_F(BenchProcesses, AFullDiskIsToldOnceAndEndsTheRun) {
  const RunResult r = mla::test::run_program(
      "/bin/bash",
      {"-c", std::string("ulimit -f 2; cd '") + dir_.string() + "'; exec '" + MLA_BENCH +
                 "' run --backend cpu-absorbed --dims h2/l32/r16/p16/v16 --kv 64..128:1 --dtype f32 "
                 "--cache f32 --min-time 0ms --max-time 50ms --noise 90% --caches warm --out full "
                 "--processes 2"});
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_EQ(lines(r.err).size(), 2U) << "an error and a hint: " << r.err;
  EXPECT_NE(r.err.find("cannot write"), std::string::npos) << r.err;
  EXPECT_TRUE(content(file("full/run.jsonl")).ends_with("\n")) << "whole lines only";
}

TEST_F(BenchProcesses, NeedAFolder) {
  for (const Args& more : {Args{"--out", "none"}, Args{"--out", "a", "--gbench-json", "g.json"}}) {
    Args args = small_run(more);
    args.insert(args.end(), {"--processes", "2"});
    const RunResult r = bench(args);
    EXPECT_EQ(r.exit_code, 2);
    EXPECT_NE(r.err.find("2 processes"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("--repetitions"), std::string::npos) << r.err;
  }
  EXPECT_FALSE(std::filesystem::exists(file("a")));
}

}  // namespace
