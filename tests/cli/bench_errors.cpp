// SPDX-License-Identifier: Apache-2.0
// Whatever a user may get wrong: a clear sentence on stderr, nothing on stdout, the right exit code, nothing
// written.
#include "bench_fixture.hpp"

namespace {

using mla::test::RunOptions;
using mla::test::RunResult;

class BenchErrors : public BenchTest {
 protected:
  /// Expects exit code `code` and each of `says` on stderr.
  void expect(const Args& args, int code, const std::vector<std::string>& says,
              const RunOptions& options = {}) const {
    const RunResult r = bench(args, options);
    std::string line = "mla-bench";
    for (const std::string& a : args) line += " " + a;
    SCOPED_TRACE(line + "\nstderr: " + r.err);
    EXPECT_EQ(r.exit_code, code);
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with("mla-bench: error: "));
    for (const std::string& part : says) EXPECT_NE(r.err.find(part), std::string::npos) << part;
    EXPECT_EQ(r.err.find("terminate"), std::string::npos);
    EXPECT_LE(lines(r.err).size(), 3U) << "one sentence and a hint";
    EXPECT_FALSE(std::filesystem::exists(dir_ / "results"))
        << "nothing is written for a request that cannot be";
  }
};

TEST_F(BenchErrors, Usage) {
  expect({}, 2, {"a command is missing: run, report,"});
  expect({"rnu"}, 2, {"'rnu'", "run"});
  expect({"run", "--widnow", "3"}, 2, {"'--widnow'", "--window"});
  expect({"run", "--widnow=3"}, 2, {"'--widnow'", "--window"});
  expect({"--widnow", "3"}, 2, {"'--widnow'", "--window"});
  expect({"run", "stray"}, 2, {"'stray'"});
  expect({"run", "--window"}, 2, {"--window"});
  expect({"run", "-z"}, 2, {"'-z'"});
  expect({"list"}, 2, {"'what' is missing: backends|", "mla-bench list -h"});
  expect({"compare", "a"}, 2, {"'now' is missing: "});
  expect({"list", "gpu"}, 2, {"'gpu'", "gpus"});
  expect({"list", "gpus", "--explain", "x"}, 2, {"--explain"});
  expect({"list", "backends", "--selector", "x.json"}, 2, {"--selector", "--explain"});
  expect({"list", "backends", "-o", "xml"}, 2, {"'xml'", "table, json, csv, md and html"});
  expect({"list", "backends", "--color", "red"}, 2, {"'red'", "never"});
  expect({"--completion", "tcsh"}, 2, {"'tcsh'", "bash"});
  expect({"--config-dir", "/nonexistent", "list", "axes"}, 2, {"/nonexistent"});
  expect({"list", "axes", "--config-dir", "/nonexistent"}, 2, {"/nonexistent"});
}

TEST_F(BenchErrors, Values) {
  expect(small_run({"--window", "wide"}), 2, {"--window", "'wide'"});
  expect({"run", "--noise", "1"}, 2, {"--noise", "'1'", "1%"});
  expect(small_run({"--max-time", "9"}), 2, {"--max-time", "is given 2 times"});
  expect({"run", "--max-time", "9"}, 2, {"--max-time", "'9'", "50ms"});
  expect({"run", "--kv", "99999999999"}, 2, {"99999999999"});
  expect({"run", "--kv", "123456789012345678901234567890"}, 2, {"1234567890"});
  expect({"run", "--kv", "-3"}, 2, {"-3"});
  expect({"run", "--kv", "nan"}, 2, {"'nan'"});
  expect({"run", "--kv", ""}, 2, {"kv", "empty"});
  expect({"run", "--batch", "1q1s1k", "--kv", "4k"}, 2, {"batch", "kv", "twice"});
  expect({"run", "--batch", "1q9s3"}, 2, {"9", "3"});
  expect({"run", "--shape", "decode h16 banana"}, 2, {"banana"});
  expect({"run", "--backend", "cpu-absorbd"}, 2, {"cpu-absorbd", "cpu-absorbed"});
  expect({"run", "--model", "deepsek-v3"}, 2, {"deepsek-v3"});
  expect({"run", "--memory-limit", "80"}, 2, {"--memory-limit", "GiB"});
  expect(small_run({"--filter", "("}), 2, {"'('"});
  expect(small_run({"--filter", "nothing-like-it"}), 2, {"nothing-like-it"});
  expect({"list", "backends", "--explain", "decode h0"}, 2, {"0"});
  expect(small_run({"--gpu", "h200"}), 2, {"--gpu is 'h200'", "number of a GPU"});
}

TEST_F(BenchErrors, Specs) {
  write("cut.json", R"({"axes": {"heads": 16)");
  write("key.json", R"({"axes": {"heds": 16}})");
  write("type.json", R"({"axes": {"heads": {"a": 1}}})");
  write("list.json", R"([1, 2])");
  write("bytes.json", std::string("\xff\xfe\0\x01", 4));
  write("empty.json", "");
  expect({"run", "--spec", "no-such-sweep"}, 2, {"'no-such-sweep'"});
  expect({"run", "--spec", "smok"}, 2, {"'smok'", "smoke"});
  expect({"run", "--spec", "cut.json"}, 2, {"cut.json"});
  expect({"run", "--spec", "key.json"}, 2, {"'heds'", "heads"});
  expect({"run", "--spec", "type.json"}, 2, {"'heads'", "object"});
  expect({"run", "--spec", "list.json"}, 2, {"list.json"});
  expect({"run", "--spec", "bytes.json"}, 2, {"bytes.json"});
  expect({"run", "--spec", "empty.json"}, 2, {"empty.json"});
  expect({"run", "--spec", "."}, 2, {"'.'"});
  expect({"run", "--spec", "-"}, 2, {"standard input", "'x'"}, {.stdin_text = R"({"x": 1})"});
}

TEST_F(BenchErrors, WhereResultsGo) {
  expect(small_run({"--out", "/dev/null/x"}), 2, {"/dev/null/x"});
  expect(small_run({"--resume"}), 2, {"--resume", "--out"});
  expect(small_run({"--resume", "--out", "none"}), 2, {"--resume"});
  expect({"run", "--resume", "--out", "never-was"}, 2, {"--resume: there is no run in 'never-was'"});
  write("there.json", "mine");
  expect(small_run({"--gbench-json", "there.json"}), 2, {"there.json", "overwrites"});
  EXPECT_EQ(content(file("there.json")), "mine");
  std::filesystem::create_directories(dir_ / "old");
  write("old/run.jsonl", "mine");
  expect(small_run({"--out", "old"}), 2, {"old/run.jsonl", "overwrites"});
  EXPECT_EQ(content(file("old/run.jsonl")), "mine");
}

TEST_F(BenchErrors, AFullOrClosedStdoutIsNotSilence) {
  for (const Args& args : {Args{"list", "axes"}, Args{"-h"}, Args{"--help"}, Args{"--version"}, Args{"--man"},
                           Args{"run", "--help"}, Args{"--completion", "bash"}, Args{"run", "--print-spec"},
                           Args{"list", "axes", "--names"}}) {
    const RunResult r = bench(args, {.stdout_path = "/dev/full"});
    EXPECT_EQ(r.exit_code, 2) << args[0];
    EXPECT_NE(r.err.find("standard output: No space left on device"), std::string::npos) << r.err;
  }
  const RunResult closed = mla::test::run_program(
      "/bin/bash",
      {"-c", std::string("set -o pipefail; '") + MLA_BENCH + "' list axes | true; echo ${PIPESTATUS[0]}"});
  // `true` may live long enough to take the text. A reader who left is no error to speak of.
  EXPECT_TRUE(closed.out == "141\n" || closed.out == "0\n") << closed.out;
  EXPECT_EQ(closed.err, "");
}

TEST_F(BenchErrors, AFullDiskEndsTheRunWithWhatFits) {
  const RunResult r = mla::test::run_program(
      "/bin/bash",
      {"-c",
       std::string("ulimit -f 2; cd '") + dir_.string() + "'; exec '" + MLA_BENCH +
           "' run --backend cpu-absorbed --dims h2/l32/r16/p16/v16 --kv 64..128:1 --dtype f32 --cache f32 "
           "--min-time 0ms --max-time 50ms --noise 90% --caches warm --out full"});
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_NE(r.err.find("cannot write"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("File too large"), std::string::npos) << r.err;
  EXPECT_TRUE(content(file("full/run.jsonl")).ends_with("\n")) << "whole lines only";
}

TEST_F(BenchErrors, AFullDiskIsSaidOfEveryFileAndLeavesNoHalf) {
  ASSERT_EQ(bench(small_run({"--out", "a"})).exit_code, 0);
  // What follows is longer than the limit of a kilobyte, as on a disk with no more room.
  for (const std::string& command :
       {std::string("report a -o html --to page.html"), std::string("report a -o json --to all.json"),
        std::string("run --resume --out a --gbench-json g.json --kv 64..80")}) {
    const RunResult r = mla::test::run_program(
        "/bin/bash", {"-c", "ulimit -f 1; cd '" + dir_.string() + "'; exec '" + MLA_BENCH + "' " + command});
    EXPECT_EQ(r.exit_code, 2) << command << r.out;
    EXPECT_NE(r.err.find("cannot write"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("File too large"), std::string::npos) << r.err;
  }
  EXPECT_FALSE(std::filesystem::exists(file("page.html")));
  EXPECT_FALSE(std::filesystem::exists(file("all.json")));
  const RunResult unwritten = mla::test::run_program(
      "/bin/bash",
      {"-c", "ulimit -f 1; cd '" + dir_.string() + "'; exec '" + MLA_BENCH +
                 "' run --backend cpu-absorbed,cpu-expanded --dims h2/l32/r16/p16/v16 --kv 64 --dtype f32 "
                 "--cache f32 --caches warm --max-time 20ms --out none --gbench-json g2.json"});
  EXPECT_EQ(unwritten.exit_code, 2) << unwritten.out;
  EXPECT_NE(unwritten.err.find("'g2.json' was not written whole"), std::string::npos) << unwritten.err;
}

TEST_F(BenchErrors, WhatTheMachineCannotDo) {
  const RunResult r = bench(small_run({"--backend", "cpu-expanded"}));
  EXPECT_NE(r.err.find("--backend"), std::string::npos) << "given twice";
  const RunResult cannot = bench({"run", "--backend", "cpu-expanded", "--dims", "h2/l32/r16/p16/v16", "--kv",
                                  "64", "--space", "latent", "--out", "none"});
  EXPECT_EQ(cannot.exit_code, 3) << cannot.out << cannot.err;
  EXPECT_NE(cannot.out.find("unsupported"), std::string::npos) << cannot.out;
}

}  // namespace
