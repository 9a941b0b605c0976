// SPDX-License-Identifier: Apache-2.0
// Every backend that runs on a GPU, judged against the fp64 reference by mla-verify's own machinery: the
// pairwise suite, the oracles that need no tolerance, and a captured graph that is replayed with other
// lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "device_array.hpp"
#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "verify/judge.hpp"
#include "verify/oracles.hpp"
#include "verify/run_suite.hpp"
#include "verify/suite.hpp"
#ifdef MLA_HAVE_CUDA
#include "captured_graph.hpp"
#include "two_streams.hpp"
#endif

namespace {

using namespace mla;
using namespace mla::verify;

std::vector<const Backend*> device_backends() {
  std::vector<const Backend*> found;
  for (const Backend* backend : backends()) {
    if (backend->info().on_device) found.push_back(backend);
  }
  return found;
}

class OnDevice : public ::testing::TestWithParam<const Backend*> {
 protected:
  static Participant participant() {
    const Device& device = *mla::testing::test_gpu().device;
    return {GetParam(), {device, &device_memory(device)}};
  }
};

TEST_P(OnDevice, AgreesWithTheReference) {
  MLA_NEEDS_GPU();
  const Backend* const one[] = {GetParam()};
  const std::vector<Participant> participants = {participant()};
  LocalJudge judge;
  const SuiteRun run = run_suite(make_suite("quick", one, 1).cases, participants, {}, judge);
  for (const Verdict& verdict : run.verdicts) {
    EXPECT_NE(verdict.outcome, Outcome::kFailed)
        << to_text(verdict.c) << "\n  " << verdict.reason << "\n  " << verdict.plan << "\n  "
        << to_text(verdict.report, verdict.c.shape.dims.num_heads);
  }
  RecordProperty("passed", static_cast<int>(run.passed));
  EXPECT_GT(run.passed, 0);
}

TEST_P(OnDevice, HoldsTheOracles) {
  MLA_NEEDS_GPU();
  const std::vector<Participant> participants = {participant()};
  LocalJudge judge;
  const OracleRun run = run_oracles(participants, {1, 50, true}, {}, judge);
  for (const OracleVerdict& verdict : run.verdicts) {
    EXPECT_NE(verdict.outcome.outcome, Outcome::kFailed)
        << verdict.oracle << " (" << verdict.expectation << "): " << verdict.outcome.reason << "\n  "
        << to_text(verdict.base);
  }
  EXPECT_GT(run.passed, 0);
}

/// Shapes that stress what suites keep small; each is tried where the backend supports it.
constexpr const char* kLongCases[] = {
    // Pools that pass 2^31 elements and 2^32 bytes, block sizes that are no powers of two.
    "decode latent h16 l512 r64 p128 v128 2q1s200 causal b64 q:bf16 out:bf16 cache:bf16 first_block=58255",
    "decode latent h16 l512 r64 p128 v128 1q1s7 causal b1 q:bf16 out:bf16 cache:bf16 first_block=3728270",
    "decode latent h16 l512 r64 p128 v128 1q1s481 causal b480 q:bf16 out:bf16 cache:bf16 first_block=7768",
    // Tokens of q and out that lie 2^30 elements apart.
    "decode head h2 l512 r64 p128 v128 q2s9_q1s3 causal b64 q:bf16 out:bf16 cache:bf16 far_rows=yes",
    "decode latent h2 l512 r64 p128 v128 q2s9_q1s3 causal b64 q:bf16 out:bf16 cache:bf16 far_rows=yes",
    "prefill head h2 l512 r64 p128 v128 q3 causal b64 q:bf16 out:bf16 cache:bf16 far_rows=yes",
    // Many splits of one long request, few keys for many splits, ragged lengths with empty ones.
    "decode latent h16 l512 r64 p128 v128 q1s8193 causal b64 q:bf16 out:bf16 cache:bf16 splits=132",
    "decode latent h128 l512 r64 p128 v128 q1s4097 causal b64 q:bf16 out:bf16 cache:bf16",
    "decode latent h4 l512 r64 p128 v128 q1s3 causal b4 q:bf16 out:bf16 cache:bf16 splits=8",
    "decode latent h20 l512 r64 p128 v128 3q1s4k_2q1s0_5q2s77_q8s1000 causal b48 q:bf16 out:f32 cache:bf16",
    "decode latent h16 l512 r64 p128 v128 2q8s64_2q8s1k causal b64 q:bf16 out:bf16 cache:bf16",
    // Enough for cuda-latent's tiles of 32 rows: rows that CTAs load in pairs, and rows that they fetch one by one.
    "decode latent h128 l512 r64 p128 v128 q1s3000_q1s2100_q1s64_q1s0_q1s31 causal b32 q:f16 out:f16 "
    "cache:f16 values=nan splits=7",
    "decode latent h64 l512 r64 p128 v128 q1s9000_q1s70 causal b64 q:bf16 out:bf16 cache:bf16 poison=inf",
    "decode latent h40 l512 r64 p128 v128 q3s9000_q2s3000_q1s70 causal w6000 sink4 b16 q:bf16 out:f32 "
    "cache:bf16_split values=nan poison=max",
    // Enough for cuda-latent's large-work kernel; first tokens see a single key, whose weight must be exactly 1.
    "decode latent h128 l512 r64 p128 v128 q8s2000_q3s1500_q8s0_q1s700_q5s5 causal b48 q:bf16 out:f32 "
    "cache:bf16_split values=nan poison=max",
    "decode latent h128 l512 r64 p128 v128 4q2s900 w256 sink4 causal b16 q:f16 out:f16 cache:f16",
    "decode latent h128 l512 r64 p128 v128 2q1s9k topk2048 b64 q:bf16 out:bf16 cache:fp8_ds_mla",
};

TEST_P(OnDevice, LongCases) {
  MLA_NEEDS_GPU();
  const Participant one = participant();
  for (const char* text : kLongCases) {
    CaseRun run(parse_case(text));
    const Verdict verdict = run.judge(*one.backend, one.machine);
    EXPECT_NE(verdict.outcome, Outcome::kFailed)
        << text << "\n  " << verdict.reason << "\n  " << verdict.plan << "\n  "
        << to_text(verdict.report, verdict.c.shape.dims.num_heads);
  }
}

/// A request alone, and as first and last of a batch of other lengths, where the same bits were asked for.
TEST_P(OnDevice, HasTheSameBitsInAnyBatchIfAskedTo) {
  MLA_NEEDS_GPU();
  if (!GetParam()->info().batch_invariant_option) GTEST_SKIP() << "it has no such option";
  const Participant one = participant();
  for (const char* text : {"decode latent h16 l512 r64 p128 v128 q1s3000_q1s77_q2s900_q1s0_q1s5k causal b64 "
                           "q:bf16 out:f32 cache:bf16 invariant=yes",
                           "decode latent h40 l512 r64 p128 v128 q3s1300_40q1s200 causal b16 q:f16 out:f16 "
                           "cache:f16 invariant=yes",
                           "decode latent h8 l256 r32 p64 v64 q1s600_q8s2k causal w512 sink4 b64 q:bf16 "
                           "out:bf16 cache:bf16 invariant=yes"}) {
    const Case shape = parse_case(text);
    CaseRun run(shape);
    const Verdict verdict = run.judge(*one.backend, one.machine);
    EXPECT_EQ(verdict.outcome, Outcome::kPassed) << text << "\n  " << verdict.reason;
    const OracleOutcome outcome = ask_oracle(get_oracle("batch"), {one.backend, one.machine, shape, 2});
    EXPECT_EQ(outcome.outcome, Outcome::kPassed) << text << "\n  " << outcome.reason;
  }
}

bool shares_prefixes(const Participant& one) {
  const AttentionShape shape = parse_shape("decode latent h16 2q1s128 prefix64");
  return static_cast<bool>(one.backend->supports(shape, one.machine.device));
}

TEST_P(OnDevice, SharedPrefixes) {
  MLA_NEEDS_GPU();
  const Participant one = participant();
  if (!shares_prefixes(one)) GTEST_SKIP() << "it reads no prefix once";
  const std::string file = MLA_SOURCE_DIR "/configs/verify/shared-prefix.txt";
  std::ifstream in(file);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  for (const Case& c : parse_cases(all, file)) {
    const std::string text = to_text(c);
    CaseRun run(c);
    const Verdict verdict = run.judge(*one.backend, one.machine);
    EXPECT_EQ(verdict.outcome, Outcome::kPassed)
        << text << "\n  " << verdict.reason << "\n  " << verdict.plan << "\n  "
        << to_text(verdict.report, verdict.c.shape.dims.num_heads);
    if (c.values == ValueKind::kNan || !c.lse)
      continue;  // no two NaNs need be the same bits; replays compare the LSE
    for (const char* oracle : {"poison", "repeats", "wide-table"}) {
      const OracleOutcome outcome = ask_oracle(get_oracle(oracle), {one.backend, one.machine, c, 5});
      EXPECT_EQ(outcome.outcome, Outcome::kPassed) << text << "\n  " << oracle << ": " << outcome.reason;
    }
#ifdef MLA_HAVE_CUDA
    for (const std::string& failure : mla::testing::replay_with_other_lengths(one, c)) {
      ADD_FAILURE() << text << ": " << failure;
    }
#endif
  }
}

TEST_P(OnDevice, SharedPrefixesAndTheSameBitsInAnyBatchExcludeEachOther) {
  MLA_NEEDS_GPU();
  const Participant one = participant();
  if (!shares_prefixes(one)) GTEST_SKIP() << "it reads no prefix once";
  const AttentionShape shape = parse_shape("decode latent h16 4q1s200 prefix128");
  PlanOptions options{.batch_invariant = true, .prefix_reads = PrefixReads::kOnce};
  try {
    (void)one.backend->plan(shape, one.machine.device, options);
    ADD_FAILURE() << "both at once";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("the prefix of 128 tokens that 4 of them share"), std::string::npos)
        << e.what();
  }
  for (const PrefixReads reads : {PrefixReads::kAuto, PrefixReads::kEach}) {
    options.prefix_reads = reads;
    EXPECT_NE(one.backend->plan(shape, one.machine.device, options), nullptr);
  }
}

#ifdef MLA_HAVE_CUDA
TEST_P(OnDevice, ReplaysACapturedGraphWithOtherLengths) {
  MLA_NEEDS_GPU();
  const Participant one = participant();
  int replayed = 0;
  for (const Case& shape : oracle_shapes(one, {5, 1, true})) {
    for (const std::string& failure : mla::testing::replay_with_other_lengths(one, shape)) {
      ADD_FAILURE() << to_text(shape) << ": " << failure;
    }
    ++replayed;
  }
  EXPECT_GT(replayed, 0);
}

TEST_P(OnDevice, TwoStreamsShareTheGpu) {
  MLA_NEEDS_GPU();
  const Participant one = participant();
  for (const char* text :
       {"decode latent h16 l512 r64 p128 v128 2q1s2k causal b64 q:bf16 out:bf16 cache:bf16",
        "decode latent h32 l512 r64 p128 v128 q2s900_q1s3k_5q2s77 causal b64 q:bf16 "
        "out:bf16 cache:bf16",
        "decode latent h16 l512 r64 p128 v128 12q1s700_q1s900 causal prefix640 b64 q:bf16 out:bf16 "
        "cache:bf16 reads=once"}) {
    const Case shape = parse_case(text);
    if (!GetParam()->supports(shape.shape, one.machine.device)) continue;
    EXPECT_EQ(mla::testing::run_on_two_streams(one, shape), "") << text;
  }
}
#endif

TEST(DeviceBackends, RefuseAnotherBackendsPlanAndASmallWorkspace) {
  MLA_NEEDS_GPU();
  const Device& device = *mla::testing::test_gpu().device;
  AttentionShape shape;
  shape.batch = {{1, 64}};
  std::vector<std::unique_ptr<Plan>> plans;
  std::vector<const Backend*> owners;
  for (const Backend* backend : device_backends()) {
    if (!backend->supports(shape, device)) continue;
    plans.push_back(backend->plan(shape, device));
    owners.push_back(backend);
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    for (std::size_t j = 0; j < plans.size(); ++j) {
      if (i == j) continue;
      EXPECT_THROW(owners[i]->run(*plans[j], {}, {}), Error) << owners[i]->info().name;
    }
    if (plans[i]->workspace_bytes() > 0) {
      EXPECT_THROW(owners[i]->run(*plans[i], {}, {}), Error) << owners[i]->info().name;
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnDevice);
INSTANTIATE_TEST_SUITE_P(Backends, OnDevice, ::testing::ValuesIn(device_backends()), [](const auto& param) {
  std::string name(param.param->info().name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
