// SPDX-License-Identifier: Apache-2.0
// Failures made small, written down and judged elsewhere.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "expect_error.hpp"
#include "peer/process.hpp"
#include "verify/capabilities.hpp"
#include "verify/judge.hpp"
#include "verify/judge_lines.hpp"
#include "verify/limits_file.hpp"
#include "verify/mutants.hpp"
#include "verify/mutation.hpp"
#include "verify/repro.hpp"
#include "verify/shrink.hpp"
#include "verify/suite.hpp"

namespace mla::verify {
namespace {

struct Subject {
  explicit Subject(const char* mutant) : kernel(make_kernel(get_mutant(mutant))) {
    participant = {kernel.get(), {host_device(), &host_memory()}, {}};
  }
  std::unique_ptr<EmulatedKernel> kernel;
  Participant participant;
  LocalJudge judge;
};

struct Planted {
  const char* mutant;
  const char* found_on;
  int most_heads;
  std::int64_t most_keys;
};

std::ostream& operator<<(std::ostream& out, const Planted& planted) {
  return out << planted.mutant;
}

class Shrinks : public testing::TestWithParam<Planted> {};

TEST_P(Shrinks, APlantedFaultToAHandfulOfKeys) {
  const Planted& planted = GetParam();
  Subject s(planted.mutant);
  const Failing failing = failing_on(s.judge, s.participant, nullptr, 1);
  const Case found_on = parse_case(planted.found_on);
  const std::optional<Finding> first = failing(found_on);
  ASSERT_TRUE(first) << planted.found_on;
  const Shrunk shrunk = shrink(found_on, *first, failing);
  SCOPED_TRACE(to_text(shrunk.c));
  EXPECT_FALSE(shrunk.stopped);
  EXPECT_LE(shrunk.tried, 400);
  EXPECT_EQ(shrunk.c.shape.batch.size(), 1U);
  EXPECT_LE(shrunk.c.shape.dims.num_heads, planted.most_heads);
  EXPECT_LE(shrunk.c.shape.batch[0].kv_len, planted.most_keys);
  // It fails by itself, from its text, in the same way; nothing simpler does.
  const std::optional<Finding> again = failing(parse_case(to_text(shrunk.c)));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->failure, first->failure);
  for (const Case& simpler : simpler_cases(shrunk.c)) {
    const std::optional<Finding> finding = failing(simpler);
    EXPECT_FALSE(finding && finding->failure == first->failure) << to_text(simpler);
  }
}

// What each fault needs, by its definition: a window cut by one needs two keys, a mask that shows the future
// two queries, the last head of a tile of 16 all 17 of them, the row behind a half-filled block one more key
// than it holds.
INSTANTIATE_TEST_SUITE_P(
    Mutants, Shrinks,
    testing::Values(
        Planted{"drop-newest", "decode latent h8 l128 r16 p32 v48 q1s70_q3s33_q1s0_q2s2 causal b16 splits=3",
                1, 2},
        Planted{"window-more", "decode latent h5 l64 r16 p32 v48 q1s70_q3s33 causal w9 sink2 b16", 1, 2},
        Planted{"mask-later", "decode latent h3 l64 r16 p32 v48 q4s70_q3s33 causal b16", 1, 2},
        Planted{"no-rotary", "decode latent h16 l128 r32 p32 v48 3q1s50 causal b16 permuted=no", 1, 2},
        Planted{"no-sink", "decode latent h5 l64 r16 p32 v48 q1s70_q1s33 causal w9 sink4 b16", 1, 3},
        Planted{"minus-one-is-zero", "decode latent h4 l64 r16 p32 v48 3q1s50 topk12 b16 index=middle", 1, 3},
        Planted{"lse-base-2", "decode latent h4 l64 r16 p32 v48 3q1s50 causal b16", 1, 2},
        Planted{"empty-is-nan", "decode latent h4 l64 r16 p32 v48 q1s70_q1s0_q1s9 causal b16", 1, 0},
        Planted{"writes-padding", "decode latent h4 l64 r16 p32 v48 2q1s20 causal b16 strided=yes", 2, 2},
        Planted{"whole-blocks", "decode latent h4 l64 r16 p32 v48 2q1s21 causal b16", 1, 16},
        Planted{"head-tile", "decode latent h40 l64 r16 p32 v48 2q1s20 causal b16", 17, 2}),
    [](const testing::TestParamInfo<Planted>& planted) {
      std::string name = planted.param.mutant;
      std::erase(name, '-');
      return name;
    });

TEST(Shrink, SharedPrefixesStayAsLongAsTheyFit) {
  const Case c = parse_case(
      "decode latent h2 l64 r16 p16 v16 q1s5_2q1s40_q1s50 causal prefix32@1+3 b16 q:f32 out:f32 cache:f32");
  std::set<std::string> texts;
  for (const Case& simpler : simpler_cases(c)) {
    EXPECT_NO_THROW(validate(simpler)) << to_text(simpler);
    texts.insert(format_batch(simpler.shape.batch) + (simpler.shape.shared.empty() ? "" : " shared") +
                 (simpler.shape.shared.empty() ? "" : std::to_string(simpler.shape.shared[0].tokens)));
  }
  for (const char* wanted : {"q1s5_2q1s40_q1s50", "q1s5_2q1s40_q1s50 shared16", "2q1s40_q1s50 shared32",
                             "q1s5_2q1s40 shared32", "q1s50 shared32", "q1s5"}) {
    EXPECT_TRUE(texts.contains(wanted)) << wanted;
  }
}

TEST(Shrink, KeepsTheKindOfFailure) {
  // Fails by an error with three heads or more and by NaN below: a smaller case that fails otherwise is
  // another fault.
  const Failing failing = [](const Case& c) -> std::optional<Finding> {
    return Finding{c.shape.dims.num_heads >= 3 ? Failure::kError : Failure::kNan, "planted"};
  };
  const Case c = parse_case("decode latent h12 l64 r16 p32 v48 2q1s20 causal b16");
  const Shrunk shrunk = shrink(c, {Failure::kError, "planted"}, failing);
  EXPECT_EQ(shrunk.c.shape.dims.num_heads, 3);
  EXPECT_EQ(shrunk.finding.failure, Failure::kError);
}

TEST(Shrink, StopsWhenTold) {
  const Failing failing = [](const Case&) { return std::optional<Finding>({Failure::kError, "always"}); };
  const Case c = parse_case("decode latent h12 l64 r16 p32 v48 2q1s20 causal b16");
  ShrinkOptions options;
  options.most_tries = 3;
  const Shrunk shrunk = shrink(c, {Failure::kError, ""}, failing, options);
  EXPECT_EQ(shrunk.tried, 3);
  EXPECT_TRUE(shrunk.stopped);
  options.stop = [] { return true; };
  EXPECT_EQ(shrink(c, {Failure::kError, ""}, failing, options).tried, 0);
}

TEST(Shrink, AnOraclesFailureToo) {
  Subject s("race");
  const Failing failing = failing_on(s.judge, s.participant, &get_oracle("repeats"), 10);
  const Case c = parse_case("decode latent h4 l64 r16 p32 v48 2q1s40 causal b16 q:f32 out:f32 cache:f32");
  const std::optional<Finding> first = failing(c);
  ASSERT_TRUE(first);
  const Shrunk shrunk = shrink(c, *first, failing);
  EXPECT_EQ(shrunk.c.shape.batch.size(), 1U) << to_text(shrunk.c);
  EXPECT_LE(shrunk.c.shape.dims.num_heads, 2) << to_text(shrunk.c);
  EXPECT_LE(shrunk.c.shape.batch[0].kv_len, 2) << to_text(shrunk.c);
}

// ---- written down
// -----------------------------------------------------------------------------------------------

Repro a_repro() {
  Repro repro;
  repro.backend = "mutant:hang";
  repro.c = parse_case("decode latent h2 l1 r0 p1 v1 q1s6 causal b1 q:f32 out:f32 cache:f32 seed=9");
  repro.found_as = parse_case("decode latent h5 l256 r64 p64 v128 q1s65 causal b32");
  repro.failure = Failure::kHang;
  repro.finding = "it gave no answer within \"3\" s";
  repro.version = "1.2.3";
  repro.plugins = {"/x/mine.so"};
  return repro;
}

TEST(Repro, ReadsWhatItWrote) {
  const Repro repro = a_repro();
  const std::string json = to_json(repro, "here.json");
  EXPECT_NE(json.find("\"mla-verify run --replay here.json\""), std::string::npos) << json;
  const Repro read = parse_repro(json, "here.json");
  EXPECT_EQ(read.backend, repro.backend);
  EXPECT_EQ(read.oracle, "");
  EXPECT_EQ(read.c, repro.c);
  EXPECT_EQ(read.found_as, repro.found_as);
  EXPECT_EQ(read.failure, Failure::kHang);
  EXPECT_EQ(read.finding, repro.finding);
  EXPECT_EQ(read.version, "1.2.3");
  EXPECT_EQ(read.plugins, repro.plugins);
}

void expect_refused(std::string json, const std::string& from, const std::string& to,
                    const std::string& says) {
  const std::size_t at = json.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  json.replace(at, from.size(), to);
  try {
    (void)parse_repro(json, "r.json");
    ADD_FAILURE() << to;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kParse);
    EXPECT_TRUE(std::string(e.what()).starts_with("r.json: ")) << e.what();
    EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
  }
}

TEST(Repro, FaultsAreNamed) {
  const std::string json = to_json(a_repro(), "r.json");
  expect_refused(json, "{", "[", "JSON");
  expect_refused(json, "verify.repro", "bench.run", "kind");
  expect_refused(json, "\"hang\"", "\"hung\"", "hung");
  expect_refused(json, "seed=9", "sead=9", "sead=9");
  expect_refused(json, "\"backend\"", "\"backened\"", "'backend'");
  expect_refused(json, "[\n  \"/x/mine.so\"\n ]", "7", "'plugins'");
}

// ---- a process beside
// -------------------------------------------------------------------------------------------

TEST(Process, AnswersEndsAndFallsSilent) {
  using peer::Process;
  std::string line;
  Process echo({"cat"});
  EXPECT_EQ(echo.try_write("one", 10), Process::Outcome::kDone);
  EXPECT_EQ(echo.try_write("two", 10), Process::Outcome::kDone);
  EXPECT_EQ(echo.try_read(line, 10), Process::Outcome::kDone);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(echo.try_read(line, 10), Process::Outcome::kDone);
  EXPECT_EQ(line, "two");
  EXPECT_EQ(echo.try_read(line, 0.05), Process::Outcome::kSilent);
  Process dies({"sh", "-c", "echo last words >&2; kill -SEGV $$"});
  EXPECT_EQ(dies.try_read(line, 10), Process::Outcome::kEnded);
  EXPECT_NE(dies.how_it_ended().find("signal 11"), std::string::npos) << dies.how_it_ended();
  EXPECT_NE(dies.how_it_ended().find("last words"), std::string::npos) << dies.how_it_ended();
  Process leaves({"sh", "-c", "exit 7"});
  EXPECT_EQ(leaves.try_read(line, 10), Process::Outcome::kEnded);
  EXPECT_EQ(leaves.how_it_ended(), "ended with exit code 7");
  EXPECT_THROW(Process({"/nonexistent/program"}), Error);
}

TEST(JudgeLines, VerdictsComeBackWhole) {
  Subject s("drop-newest");
  const Verdict verdict =
      s.judge.judge(parse_case("decode latent h2 l64 r16 p32 v48 q1s5_q1s0 causal b16"), s.participant);
  ASSERT_EQ(verdict.outcome, Outcome::kFailed);
  const Verdict read = parse_verdict(to_line(verdict));
  EXPECT_EQ(read.c, verdict.c);
  EXPECT_EQ(read.backend, "mutant:drop-newest");
  EXPECT_EQ(read.outcome, verdict.outcome);
  EXPECT_EQ(read.failure, verdict.failure);
  EXPECT_EQ(read.reason, verdict.reason);
  EXPECT_EQ(read.share(), verdict.share());
  EXPECT_EQ(read.by_head, verdict.by_head);
  EXPECT_EQ(read.by_length, verdict.by_length);
  EXPECT_EQ(to_text(read.report, 2), to_text(verdict.report, 2));
  EXPECT_THROW((void)parse_verdict("{}"), Error);
  EXPECT_THROW((void)parse_request("no JSON"), Error);
}

// ---- constants and claims
// ---------------------------------------------------------------------------------------

std::string limits_text() {
  std::ifstream in(std::string(MLA_SOURCE_DIR) + "/configs/verify/limits.json");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(LimitsFile, HoldsTheLibrarysOwnNumbers) {
  EXPECT_EQ(parse_limits(limits_text(), "limits.json"), Limits{});
}

TEST(LimitsFile, FaultsAreNamed) {
  const auto expect_fault = [](const std::string& from, const std::string& to, const std::string& says) {
    std::string text = limits_text();
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    try {
      (void)parse_limits(text, "limits.json");
      ADD_FAILURE() << to;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
    }
  };
  expect_fault("\"sigmas\": 5.0", "\"sigmas\": -5.0", "'sigmas' is -5");
  expect_fault("\"sigmas\": 5.0", "\"sigmas\": \"5\"", "'sigmas' is '5', but must be a number");
  expect_fault("\"sigmas\"", "\"sigma\"", "'sigma' is unknown");
  expect_fault("\"bias_samples\": 32", "\"bias_samples\": 1.5",
               "'bias_samples' is 1.5, but must be a whole number");
  expect_fault("\"schema_version\": 1", "\"schema_version\": 2", "'schema_version' must be 1");
}

/// Says yes to 64 heads and more, but then gives nothing; says no to 63, but plans for them.
struct Boasts : EmulatedKernel {
  Boasts() : EmulatedKernel({"boasts", {}, 32, 1}) {}
  Support supports(const AttentionShape& shape, const Device& device) const override {
    if (shape.dims.num_heads == 63) return Support::no("63 heads are too odd");
    return EmulatedKernel::supports(shape, device);
  }
  std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                             const PlanOptions& options) const override {
    return planner.plan(shape, device, options);
  }
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    if (args.q.extent[1] < 64) EmulatedKernel::run(plan, args, workspace, stream);
  }
  EmulatedKernel planner{{"planner", {}, 32, 1}};
};

TEST(Capabilities, ClaimsAreTriedBothWays) {
  const Boasts kernel;
  const Participant participant{&kernel, {host_device(), &host_memory()}, {}};
  LocalJudge judge;
  std::set<std::string> untrue;
  for (const Capability& c : run_capabilities({&participant, 1}, 1, {}, judge).list) {
    if (!c.true_claim) untrue.insert(c.aspect + " " + c.level);
    EXPECT_TRUE(c.claimed || !(c.aspect == "heads" && c.level == "64"));
  }
  EXPECT_EQ(untrue, (std::set<std::string>{"heads 63", "heads 64", "heads 65", "heads 96", "heads 128"}));
}

}  // namespace
}  // namespace mla::verify
