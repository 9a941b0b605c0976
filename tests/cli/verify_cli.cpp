// SPDX-License-Identifier: Apache-2.0
// mla-verify as a user meets it: exit codes, streams, formats, and sentences for whatever may be wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "run_program.hpp"

namespace {

namespace fs = std::filesystem;
using mla::test::RunResult;
using Args = std::vector<std::string>;
using Json = nlohmann::json;

const std::string kGolden = std::string(MLA_TEST_DATA) + "/golden";

/// Away from the working folder, which may be the tree's: a failure leaves its repro.json where it runs.
RunResult verify(const Args& args, mla::test::RunOptions options = {}) {
  if (options.directory.empty()) options.directory = testing::TempDir();
  return mla::test::run_program(MLA_VERIFY, args, options);
}

class VerifyCli : public testing::Test {
 protected:
  VerifyCli() : dir_(fs::path(testing::TempDir()) / ("mla_verify_cli_" + std::to_string(::getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~VerifyCli() override { fs::remove_all(dir_); }

  static std::string read(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  /// What /proc says of a process behind its name, "S 1 ..."; empty where it is gone, also if it goes while it is read: then
  /// getline() fails, where iterators over the buffer would throw.
  static std::string status_of(const std::string& pid) {
    std::ifstream in("/proc/" + pid + "/stat");
    std::string line;
    std::getline(in, line);
    const std::size_t end = line.rfind(") ");
    return end == std::string::npos ? std::string() : line.substr(end + 2);
  }

  /// A golden folder with one set, to be spoiled.
  void copy_golden(const std::string& set) const {
    Json manifest = Json::parse(read(kGolden + "/manifest.json"));
    const Json only = manifest["variants"][set];
    manifest["variants"] = Json::object({{set, only}});
    std::ofstream(dir_ / "manifest.json") << manifest.dump(1);
    fs::copy_file(kGolden + "/" + set + ".safetensors", dir_ / (set + ".safetensors"),
                  fs::copy_options::overwrite_existing);
  }

  fs::path dir_;
};

void expect_error(const Args& args, int code, const std::vector<std::string>& says) {
  const RunResult r = verify(args);
  std::string line = "mla-verify";
  for (const std::string& a : args) line += " " + a;
  SCOPED_TRACE(line + "\nstderr: " + r.err);
  EXPECT_EQ(r.exit_code, code);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(r.err.starts_with("mla-verify: error: "));
  for (const std::string& part : says) EXPECT_NE(r.err.find(part), std::string::npos) << part;
}

const char* const kCase = "decode latent h2 l64 r8 p16 v24 2q1s20 causal b16 q:f32 out:f32 cache:f32";

TEST_F(VerifyCli, UsageErrorsExitWithTwo) {
  expect_error({}, 2, {"a command is missing: golden, run,"});
  expect_error({"rum"}, 2, {"'rum'", "run"});
  expect_error({"golden"}, 2, {"dir"});
  expect_error({"run", "--sed", "1"}, 2, {"'--sed'", "--seed"});
  expect_error({"run", "--seed", "x"}, 2, {"--seed", "'x'"});
  expect_error({"run", "--seed", "-1"}, 2, {"--seed"});
  expect_error({"run", "--show", "99999999999999999999"}, 2, {"--show"});
  expect_error({"run", "--repeats", "100000"}, 2, {"--repeats", "0..1000"});
  for (const char* shard :
       {"", "1", "0/3", "4/3", "1/0", "1/", "/3", "1/3/5", "-1/3", "1/1001", "a/b", "1 /3"})
    expect_error({"run", "--shard", shard}, 2, {"--shard", std::string("'") + shard + "'", "1/3"});
  expect_error({"run", "--shard", "1/2", "--time", "1s"}, 2, {"--shard", "--time"});
  expect_error({"run", "--jobs", "257"}, 2, {"--jobs", "0..256"});
  expect_error({"run", "--jobs", "2", "--in-process", "--case", kCase}, 2, {"--in-process", "--jobs", "2"});
  expect_error({"run", "--time", "1s", "--case", kCase}, 2, {"--time", "--case"});
  expect_error({"run", "--time", "1s", "--suite", "quik"}, 2, {"'quik'"});
  expect_error({"run", "--suite", "/dev/null"}, 2, {"/dev/null holds no case"});
  expect_error({"run", "--suite", "/tmp"}, 2, {"/tmp is a folder"});
  expect_error({"run", "--replay", "/tmp"}, 2, {"/tmp is a folder"});
  expect_error({"run", "--backends", "cpu-absorbed,cpu-absorbed", "--case", kCase}, 2,
               {"cpu-absorbed", "twice"});
  expect_error({"run", "--case", "decode 1q1s5 seed=1 seed=2"}, 2, {"'seed'", "twice"});
  expect_error({"run", "--case", "decode 1q1s5 splits=1025"}, 2, {"1025", "0..1024"});
  expect_error({"index", "--cases", "0"}, 2, {"--cases", "1..100000000"});
  expect_error({"run", "--suite", "quik"}, 2, {"'quik'", "quick"});
  expect_error({"run", "--filter", "("}, 2, {"'('", "regular expression"});
  expect_error({"run", "--filter", "h99999"}, 2, {"h99999", "none"});
  expect_error({"run", "--backends", "cpu-absorbd"}, 2, {"cpu-absorbd", "cpu-absorbed"});
  expect_error({"run", "--case", "decode 1q1s5 valus=normal"}, 2, {"valus=normal", "values"});
  expect_error({"run", "--case", "decode 1q9s5"}, 2, {"5", "9"});
  expect_error({"run", "--case", "decode 1q1s5 l40 cache:fp8_ds_mla"}, 3, {"40"});
  expect_error({"run", "-o", "xml"}, 2, {"xml", "json"});
  expect_error({"run", "--case", "decode \x1b[31mh1"}, 2, {"\\x1b[31m"});
  expect_error({"mutants", "--suite", "none"}, 2, {"'none'"});
}

TEST_F(VerifyCli, GoldenPassesAndNamesEverySet) {
  const RunResult r = verify({"golden", kGolden, "--summary"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.out.find("11 of 11 sets pass"), std::string::npos) << r.out;
  for (const char* set : {"v3_small", "v2lite_yarn", "glm47_flash_dims", "minicpm3_dims"}) {
    EXPECT_NE(r.out.find(set), std::string::npos) << set;
  }
}

TEST_F(VerifyCli, GoldenListsEveryTensorWithItsError) {
  const RunResult r = verify({"golden", kGolden, "--set", "v3_small", "-o", "json"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const Json json = Json::parse(r.out);
  EXPECT_EQ(json.at("kind"), "verify.golden");
  EXPECT_EQ(json.at("facts").at("sets"), 1);
  EXPECT_EQ(json.at("facts").at("checks_failed"), 0);
  for (const char* path :
       {"expanded", "absorbed", "decode absorbed", "multi expanded", "cpu-absorbed", "rope table"}) {
    EXPECT_NE(r.out.find(path), std::string::npos) << path;
  }
  EXPECT_NE(r.out.find("window_sink.out_f64"), std::string::npos);
  EXPECT_NE(r.out.find("topk.attn_f64"), std::string::npos);
}

TEST_F(VerifyCli, ACorruptedGoldenTensorFailsAndIsNamed) {
  copy_golden("v3_small");
  const fs::path file = dir_ / "v3_small.safetensors";
  std::string bytes = read(file);
  // The f64 tensors come first, in name order: seq0.attn_f64 starts the data.
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  bytes[8 + header + 6] = static_cast<char>(bytes[8 + header + 6] ^ 0x10);
  std::ofstream(file, std::ios::binary) << bytes;
  const RunResult r = verify({"golden", dir_.string()});
  EXPECT_EQ(r.exit_code, 1) << r.err;
  EXPECT_NE(r.out.find("FAIL v3_small seq0.attn_f64 (expanded): element [0, 0]: got "), std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("0 of 1 sets pass"), std::string::npos);
}

TEST_F(VerifyCli, GoldenInputErrorsExitWithTwo) {
  expect_error({"golden", "/nonexistent"}, 2, {"/nonexistent"});
  expect_error({"golden", dir_.string()}, 2, {"manifest.json", "cannot be opened"});
  std::ofstream(dir_ / "manifest.json") << "{\"format\": 1,";
  expect_error({"golden", dir_.string()}, 2, {"manifest.json", "not valid JSON"});
  copy_golden("v2lite");
  expect_error({"golden", dir_.string(), "--set", "v2light"}, 2, {"'v2light'", "v2lite"});
  fs::resize_file(dir_ / "v2lite.safetensors", 100);
  expect_error({"golden", dir_.string()}, 2, {"v2lite.safetensors"});
  std::ofstream(dir_ / "stray.safetensors") << "x";
  expect_error({"golden", dir_.string()}, 2, {"stray.safetensors"});
}

TEST_F(VerifyCli, OneCaseRunsAlone) {
  const RunResult r = verify({"run", "--case", kCase});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_NE(r.out.find("PASS: 1 of 1 judged cases pass"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("cpu-expanded left out 1 case"), std::string::npos) << r.out;
}

TEST_F(VerifyCli, NothingJudgedIsNotAPass) {
  const RunResult r = verify({"run", "--backends", "cpu-expanded", "--case", kCase});
  EXPECT_EQ(r.exit_code, 3) << r.out;
}

TEST_F(VerifyCli, ListedCasesAreCasesAgain) {
  const RunResult all = verify({"run", "--list-cases"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_GT(std::count(all.out.begin(), all.out.end(), '\n'), 150);
  const RunResult some = verify({"run", "--list-cases", "--filter", "topk.*index=duplicates"});
  const std::string first = some.out.substr(0, some.out.find('\n'));
  EXPECT_NE(first.find("index=duplicates"), std::string::npos);
  EXPECT_EQ(verify({"run", "--case", first, "--list-cases"}).out, first + "\n");
  EXPECT_EQ(verify({"run", "--list-cases"}).out, all.out) << "the same seed gives the same cases";
  EXPECT_NE(verify({"run", "--list-cases", "--seed", "2"}).out, all.out);
}

TEST_F(VerifyCli, ASuiteMayBeAFile) {
  std::ofstream(dir_ / "my.cases") << "# mine\n" << kCase << "\n";
  const RunResult r = verify({"run", "--suite", (dir_ / "my.cases").string(), "--no-oracles", "-o", "json"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const Json json = Json::parse(r.out);
  EXPECT_EQ(json.at("facts").at("cases"), 1);
  EXPECT_EQ(json.at("facts").at("passed"), 1);
  std::ofstream(dir_ / "my.cases") << kCase << " what=this\n";
  expect_error({"run", "--suite", (dir_ / "my.cases").string()}, 2, {"my.cases:1:", "what=this"});
}

TEST_F(VerifyCli, WhatDoesNotFitIntoMemoryIsNotTried) {
  const RunResult r =
      verify({"run", "--case", "decode latent h2 l8 r8 p8 v8 1q1s2147483647 b16 q:f32 out:f32 cache:f32"});
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_NE(r.out.find("GiB of memory, and this machine has"), std::string::npos) << r.out;
}

TEST_F(VerifyCli, OutputsThatCannotBeWrittenAreFoundBeforeTheWork) {
  // The mutant would fail: nothing of that is seen, because nothing has run.
  for (const char* option : {"--junit", "--html"}) {
    expect_error({"run", "--backends", "mutant:drop-newest", option, "/nonexistent/x"}, 2,
                 {"/nonexistent/x"});
    expect_error({"run", "--backends", "mutant:drop-newest", option, "/tmp"}, 2, {"/tmp", "folder"});
  }
}

TEST_F(VerifyCli, AReproThatCannotBeWrittenDoesNotLoseTheRun) {
  const RunResult r =
      verify({"run", "--backends", "mutant:drop-newest", "--case", kCase, "--repro", "/nonexistent/r.json"});
  EXPECT_EQ(r.exit_code, 1) << r.err;
  EXPECT_NE(
      r.out.find(
          "reduced, but /nonexistent/r.json cannot be written: mla-verify run --backends mutant:drop-newest"),
      std::string::npos)
      << r.out;
}

TEST_F(VerifyCli, AWorkerEndsWithWhoStartedIt) {
  // The worker's process is that which has "worker" among its words and our program as its parent.
  mla::test::RunOptions options;
  pid_t worker = 0;
  options.on_tick = [&](pid_t pid) {
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::istringstream fields(status_of(name));
      char state = 0;
      pid_t parent = 0;
      if (fields >> state >> parent && parent == pid) worker = std::stoi(name);
    }
    if (worker == 0) return true;
    ::kill(pid, SIGKILL);
    return false;
  };
  (void)verify({"run", "--backends", "mutant:hang", "--case",
                "decode latent h2 l8 r0 p8 v8 q1s7 causal b16 q:f32 out:f32 cache:f32", "--no-shrink"},
               options);
  ASSERT_GT(worker, 0);
  bool gone = false;
  for (int i = 0; !gone && i < 1000; ++i) {
    // Nobody may be there to collect it: then it stays as a zombie.
    const std::string status = status_of(std::to_string(worker));
    gone = status.empty() || status.starts_with("Z");
    if (!gone) ::usleep(20'000);
  }
  EXPECT_TRUE(gone);
}

TEST_F(VerifyCli, PartsOfASuiteAreTheWhole) {
  const auto lines = [](const Args& more) {
    Args args{"run", "--list-cases"};
    args.insert(args.end(), more.begin(), more.end());
    std::multiset<std::string> found;
    std::istringstream in(verify(args).out);
    for (std::string line; std::getline(in, line);) found.insert(line);
    return found;
  };
  const std::multiset<std::string> whole = lines({});
  std::multiset<std::string> parts;
  for (const char* shard : {"1/3", "2/3", "3/3"}) parts.merge(lines({"--shard", shard}));
  EXPECT_EQ(parts, whole);
}

TEST_F(VerifyCli, JobsChangeNothingButTheTime) {
  const auto run = [](const char* jobs) {
    Json json = Json::parse(verify({"run", "--backends", "cpu-absorbed", "--filter", "h[123] .*l40 ",
                                    "--jobs", jobs, "--show", "1000", "-o", "json"})
                                .out);
    EXPECT_EQ(json.at("facts").at("jobs"), std::stoi(jobs));
    return json.at("tables").at("cases");
  };
  EXPECT_EQ(run("1"), run("3"));
}

TEST_F(VerifyCli, TheArithmeticOfTheWorstRowIsShownIfAskedFor) {
  const std::vector<std::string> command = {"run", "--backends", "cpu-absorbed", "--case",
                                            kCase, "-o",         "json"};
  const Json plain = Json::parse(verify(command).out);
  EXPECT_FALSE(plain.at("tables").contains("formulas"));
  const Json ulps = plain.at("tables").at("ulps").at(0);
  double percent = 0;
  for (const auto& [key, value] : ulps.items())
    if (key.starts_with("percent_")) percent += value.get<double>();
  EXPECT_NEAR(percent, 100, 1e-9);
  EXPECT_GT(ulps.at("elements"), 0);
  std::vector<std::string> asked = command;
  asked.emplace_back("--formulas");
  double sum = 0, budget = -1;
  const Json shown = Json::parse(verify(asked).out);
  for (const Json& line : shown.at("tables").at("formulas")) {
    const std::string term = line.at("term");
    if (term == "budget of an element")
      budget = line.at("value");
    else if (budget < 0)
      sum += line.at("value").get<double>();
    EXPECT_EQ(line.at("backend"), "cpu-absorbed");
  }
  EXPECT_GT(budget, 0);
  EXPECT_DOUBLE_EQ(sum, budget);
}

TEST_F(VerifyCli, AnUnfinishedRunSaysSo) {
  const RunResult r = verify({"run", "--backends", "mutant:drop-newest", "--fail-fast", "--no-shrink"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.out.find("NOT COMPLETE: "), std::string::npos) << r.out;
  EXPECT_EQ(verify({"run", "--case", kCase}).out.find("NOT COMPLETE"), std::string::npos);
}

TEST_F(VerifyCli, EveryFormatAndJUnit) {
  const std::string xml = (dir_ / "out.xml").string();
  const RunResult json = verify({"run", "--case", kCase, "-o", "json", "--junit", xml});
  EXPECT_EQ(Json::parse(json.out).at("kind"), "verify.run");
  EXPECT_NE(read(xml).find("<testcase classname=\"cpu-absorbed\""), std::string::npos);
  const RunResult csv = verify({"run", "--case", kCase, "-o", "csv"});
  EXPECT_NE(csv.out.find("verdict,backend,budget_percent,case,finding"), std::string::npos) << csv.out;
  const RunResult md = verify({"run", "--case", kCase, "-o", "md"});
  EXPECT_NE(md.out.find("| verdict |"), std::string::npos) << md.out;
  expect_error({"run", "--case", kCase, "--junit", "/nonexistent/out.xml"}, 2, {"/nonexistent/out.xml"});
}

// ---- failures: reduced, written down, run again
// ------------------------------------------------------------------

/// Runs a mutant on a case, expects it to fail, and gives what was written.
Json reduced(const std::string& mutant, const std::string& case_text, const fs::path& file) {
  const RunResult r = verify({"run", "--backends", "mutant:" + mutant, "--case", case_text, "--repro",
                              file.string(), "--timeout", "1s", "-o", "json"});
  EXPECT_EQ(r.exit_code, 1) << r.err;
  EXPECT_NE(r.out.find("mla-verify run --replay " + file.string()), std::string::npos) << r.out;
  std::ifstream in(file);
  return Json::parse(in, nullptr, false);
}

TEST_F(VerifyCli, AFailureIsReducedAndItsReplayFailsTheSameWay) {
  const fs::path file = dir_ / "repro.json";
  const Json repro =
      reduced("drop-newest", "decode latent h8 l128 r16 p32 v48 q1s70_q3s33_q1s0 causal b16", file);
  EXPECT_EQ(repro.at("failure"), "error");
  EXPECT_EQ(repro.at("backend"), "mutant:drop-newest");
  // One request with one query and its only key, one head, every width at its least.
  EXPECT_TRUE(repro.at("case").get<std::string>().starts_with("decode latent h1 l1 r0 p1 v1 q1"))
      << repro.at("case");
  const RunResult replay = verify({"run", "--replay", file.string(), "-o", "json"});
  EXPECT_EQ(replay.exit_code, 1) << replay.err;
  EXPECT_EQ(Json::parse(replay.out).at("facts").at("same_failure"), true) << replay.out;
  // The same case on a sound backend passes: the fault is the kernel's.
  const RunResult sound =
      verify({"run", "--backends", "cpu-absorbed", "--case", repro.at("case").get<std::string>()});
  EXPECT_EQ(sound.exit_code, 0) << sound.out;
}

TEST_F(VerifyCli, ACrashIsAFailureAndIsReduced) {
  const fs::path file = dir_ / "repro.json";
  const Json repro = reduced("crash", "decode latent h5 l64 r16 p32 v48 q1s70_q3s33 causal b16", file);
  EXPECT_EQ(repro.at("failure"), "crash");
  EXPECT_NE(repro.at("finding").get<std::string>().find("signal 6"), std::string::npos);
  EXPECT_TRUE(repro.at("case").get<std::string>().starts_with("decode latent h1 l1 r0 p1 v1 q1s6 "))
      << repro.at("case");
  // A plain process dies of it, as a debugger wants.
  EXPECT_EQ(verify({"run", "--replay", file.string()}).exit_code, 128 + SIGABRT);
}

TEST_F(VerifyCli, AHangIsAFailureAndIsReduced) {
  const fs::path file = dir_ / "repro.json";
  const Json repro =
      reduced("hang", "decode latent h2 l8 r0 p8 v8 q1s7 causal b16 q:f32 out:f32 cache:f32", file);
  EXPECT_EQ(repro.at("failure"), "hang");
  EXPECT_TRUE(repro.at("case").get<std::string>().starts_with("decode latent h2 l1 r0 p1 v1 q1s6 "))
      << repro.at("case");
  mla::test::RunOptions options;
  options.timeout = std::chrono::seconds(1);
  EXPECT_EQ(verify({"run", "--replay", file.string()}, options).exit_code, 128 + SIGKILL);
}

TEST_F(VerifyCli, TheOthersGoOnAfterACrash) {
  const RunResult r =
      verify({"run", "--backends", "mutant:crash,cpu-absorbed", "--case", kCase, "--no-shrink"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_NE(r.out.find("FAIL: 1 of 2 judged cases pass"), std::string::npos) << r.out;
}

TEST_F(VerifyCli, ReproErrorsExitWithTwo) {
  const std::string file = (dir_ / "r.json").string();
  expect_error({"run", "--replay", file}, 2, {"r.json", "read"});
  std::ofstream(file) << "{\"kind\": \"bench.run\"}";
  expect_error({"run", "--replay", file}, 2, {"r.json", "verify.repro"});
  expect_error({"run", "--backends", "mutant:windowmore"}, 2, {"windowmore", "window-more"});
  expect_error({"run", "--time", "5 parsecs"}, 2, {"--time", "'5 parsecs'"});
  expect_error({"run", "--time", "1s", "--list-cases"}, 2, {"--list-cases", "--time"});
}

TEST_F(VerifyCli, AFuzzerSaysItsSeedAndRepeats) {
  const Args args{"run",          "--time",   "1s",     "--no-oracles", "--backends",
                  "cpu-absorbed", "--filter", "h[12] ", "-o",           "json"};
  const Json first = Json::parse(verify(args).out);
  const std::int64_t seed = first.at("facts").at("seed");
  EXPECT_GT(seed, 1'600'000'000'000'000) << "microseconds since 1970";
  EXPECT_EQ(first.at("facts").at("failed"), 0);
  Args again = args;
  again.insert(again.end(), {"--seed", std::to_string(seed), "--show", "100000"});
  const std::string repeated = verify(again).out;
  for (const Json& row : first.at("tables").at("cases")) {
    EXPECT_NE(row.at("case").get<std::string>().find(" h"), std::string::npos);
  }
  EXPECT_EQ(Json::parse(repeated).at("facts").at("seed"), seed);
}

TEST_F(VerifyCli, TheHtmlReportNeedsNoNetwork) {
  const std::string file = (dir_ / "out.html").string();
  EXPECT_EQ(verify({"run", "--case", kCase, "--html", file}).exit_code, 0);
  const std::string html = read(file);
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  for (const char* part : {"keys of the request", "head", "cpu-absorbed", "decode latent h2"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* part : {"http://", "https://", "src=", "<link"})
    EXPECT_EQ(html.find(part), std::string::npos) << part;
}

TEST_F(VerifyCli, CapabilitiesAreTried) {
  const RunResult r = verify({"capabilities", "--backends", "cpu-expanded", "-o", "csv"});
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  // supported, refused, untrue
  EXPECT_NE(r.out.find("cpu-expanded,space,head,latent,-\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("63, 64, 65, 96, 128\",-,-\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("it needs head space"), std::string::npos) << r.out;
}

TEST_F(VerifyCli, WithoutItsConstantsNothingIsJudged) {
  fs::create_directories(dir_ / "verify");
  std::ofstream(dir_ / "verify" / "limits.json") << "{\"schema_version\": 1}";
  const RunResult r = verify({"--config-dir", dir_.string(), "run", "--in-process", "--case", kCase});
  EXPECT_EQ(r.exit_code, 2) << r.out;
  EXPECT_NE(r.err.find("limits.json: has no 'sigmas'"), std::string::npos) << r.err;
}

TEST_F(VerifyCli, OraclesAreExplained) {
  const RunResult r = verify({"oracles"});
  EXPECT_EQ(r.exit_code, 0);
  for (const char* name : {"count", "spike", "poison", "splits"})
    EXPECT_NE(r.out.find(name), std::string::npos) << name;
}

TEST_F(VerifyCli, AnInterruptEndsWithWhatIsKnownSoFar) {
  mla::test::RunOptions options;
  bool sent = false;
  int ticks = 0;
  options.on_tick = [&](pid_t pid) {
    if (++ticks < 50) return true;
    if (!sent) ::kill(pid, SIGINT);
    sent = true;
    return false;
  };
  const RunResult r = verify({"run", "-o", "json"}, options);
  EXPECT_EQ(r.exit_code, 130);
  EXPECT_TRUE(Json::accept(r.out)) << r.out.substr(0, 200);
}

TEST_F(VerifyCli, HelpAndVersion) {
  const RunResult help = verify({"run", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* flag :
       {"--suite", "--filter", "--list-cases", "--seed", "--fail-fast", "--junit", "--backends"}) {
    EXPECT_NE(help.out.find(flag), std::string::npos) << flag;
  }
  EXPECT_EQ(verify({"--version"}).exit_code, 0);
}

}  // namespace
