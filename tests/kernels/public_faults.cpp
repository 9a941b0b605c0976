// SPDX-License-Identifier: Apache-2.0
// Faults that public MLA kernels had (numbered as in the collection they were taken from), each as a test of
// every decode backend that runs on a GPU and takes the shape. Most are a case judged row by row against
// double precision; where the right number can be worked out by hand it stands here.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "device_array.hpp"
#include "mla/backend.hpp"
#include "verify/problem.hpp"
#include "verify/run_case.hpp"
#include "verify/stage.hpp"

namespace {

using namespace mla;
using namespace mla::verify;

#define SMALL "l32 r8 p16 v16 "
#define V3 "l512 r64 p128 v128 "

struct Fault {
  const char* name;
  std::vector<const char*> cases;
  bool latent_only =
      false;  // else both query spaces are tried; expanding long sequences in double precision takes long
};

const std::vector<Fault> kFaults = {
    {"MLA_001_TailOfTheLastPageIsNan", {"h16 " V3 "q1s13 b4", "h16 " V3 "q1s13 b4 poison=inf"}},
    {"MLA_003_SlotsPastTheEndOfADenseCache",
     {"h16 " V3 "q1s32_q1s64_q1s96_q1s48 b128", "h16 " V3 "q1s32_q1s64_q1s96_q1s48 b128 poison=inf",
      "h16 " V3 "q1s32_q1s64_q1s96_q1s48 b128 poison=max"}},
    {"MLA_005_SkippedIndexEntriesAreNotRead",
     {"h4 " SMALL "q1s8 topk4 b4 index=middle", "h4 " V3 "q1s8 topk4 b4 index=middle"}},
    {"MLA_006_SplitsWithoutKeys", {"h4 " SMALL "q1s3 b4 splits=8", "h4 " V3 "q1s3 b4 splits=8"}},
    {"MLA_007_PaddedRowsBesideLongOnes",
     {"h16 " V3 "q1s5_q1s70_q1s64_q1s1_q1s129_3q1s0 b64 spare_columns=1024"}},
    {"MLA_008_EmptyRowsAreWritten", {"h4 " SMALL "q1s4_q1s0_q1s6 b4", "h4 " V3 "q1s4_q1s0_q1s6 b4"}},
    {"MLA_009_EmptyRowsInTheSecondStage",
     {"h4 " SMALL "q1s9_q1s17_q1s33_q1s0 b4 splits=4", "h4 " V3 "q1s9_q1s17_q1s33_q1s0 b4 splits=4"}},
    {"MLA_013_OneTableRowForSeveralQueries", {"h4 " SMALL "q3s7_q3s12 b4", "h4 " V3 "q3s7_q3s12 b4"}},
    {"MLA_016_ManyQueries", {"h16 " V3 "q1024s1024 w32 b64"}, true},
    {"MLA_017_HighPagesInAShortTable",
     {"h4 " SMALL "q1s8 b4 first_block=62", "h4 " V3 "q1s8 b4 first_block=62"}},
    {"MLA_020_Fp8BytesBeyond32Bits", {"h16 " V3 "q1s1 b1 cache:fp8 first_block=7456549"}},
    {"MLA_021_PagesOf480Beyond32Bits", {"h16 " V3 "q1s1 b480 first_block=7768"}},
    {"MLA_023_PagesOf64Beyond32Bits", {"h16 " V3 "q1s1 b64 first_block=58255"}},
    {"MLA_026_MoreRowsThanASmallGridAxis",
     {"h128 " SMALL "q513s513 w2 b64 splits=2", "h128 l128 r32 p64 v64 q513s513 w2 b64 splits=2"}},
    {"MLA_028_FourSpeculativeTokens", {"h4 " SMALL "q4s9_q4s70 b4", "h4 " V3 "q4s9_q4s70 b16"}},
    {"MLA_031_EightTokensSixteenHeads", {"h16 " V3 "q8s64_q8s1024 b64"}},
    {"MLA_044_EverySplitCount",
     {"h128 " V3 "q1s4097 b64 splits=1", "h128 " V3 "q1s4097 b64 splits=2", "h128 " V3 "q1s4097 b64 splits=3",
      "h128 " V3 "q1s4097 b64 splits=4", "h128 " V3 "q1s4097 b64 splits=5", "h128 " V3 "q1s4097 b64 splits=6",
      "h128 " V3 "q1s4097 b64 splits=7", "h128 " V3 "q1s4097 b64 splits=8"},
     true},
    {"MLA_046_LseOfASinglePass", {"h4 " SMALL "q1s33 b4 splits=1", "h4 " V3 "q1s33 b4 splits=1"}},
    {"MLA_048_PagesOf32", {"h4 " SMALL "q1s33 b32", "h4 " V3 "q1s33 b32"}},
    {"MLA_052_GapsBetweenPages",
     {"h4 " SMALL "q1s20 b8 strided=yes poison=max", "h4 " V3 "q1s20 b8 strided=yes poison=max"}},
    {"MLA_071_QuantisedCacheWithADominantKey",
     {"h4 " V3 "q1s5 b4 cache:fp8 values=dominant", "h4 " V3 "q1s5 b4 cache:fp8_ds_mla values=dominant"}},
    {"MLA_089_ValuesWiderThanKeys", {"h4 l512 r64 p192 v256 q1s65 b16", "h4 l32 r8 p16 v40 q1s65 b16"}},
    {"MLA_094_AnyHeadCount",
     {"h1 " V3 "q1s65 b64", "h2 " V3 "q1s65 b64", "h4 " V3 "q1s65 b64", "h5 " V3 "q1s65 b64",
      "h8 " V3 "q1s65 b64", "h12 " V3 "q1s65 b64", "h20 " V3 "q1s65 b64", "h40 " V3 "q1s65 b64",
      "h48 " V3 "q1s65 b64", "h96 " V3 "q1s65 b64"}},
    {"MLA_096_CanariesBehindTwentyHeads", {"h20 " V3 "2q1s100 b64 strided=yes"}},
    {"MLA_099_AnyTopK",
     {"h4 " V3 "q1s300 topk1 b16", "h4 " V3 "q1s300 topk3 b16", "h4 " V3 "q1s300 topk63 b16",
      "h4 " V3 "q1s300 topk64 b16", "h4 " V3 "q1s300 topk65 b16", "h4 " SMALL "q1s300 topk192 b16",
      "h4 " V3 "q1s300 topk192 b16"}},
    {"MLA_110_DominantKeyInLongSequences",
     {"h16 " V3 "q1s4095_q1s4096_q1s4097_q1s5000 b64 values=dominant seed=1",
      "h16 " V3 "q1s8191_q1s8193 b64 values=dominant seed=2",
      "h16 " V3 "q1s4097_q1s8191 b64 values=dominant seed=3"},
     true},
};

Case case_of(const std::string& text, QuerySpace space) {
  return parse_case((space == QuerySpace::kHead ? "decode head " : "decode latent ") + text);
}

/// The host fills every workspace with NaN; scores of ten thousand queries are not worth that.
constexpr std::size_t kMostWorkspace = std::size_t{1} << 30;

class PublicFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PublicFault, StaysAway) {
  MLA_NEEDS_GPU();
  const Device& device = *mla::testing::test_gpu().device;
  const Machine machine{device, &device_memory(device)};
  for (const char* text : GetParam().cases) {
    int took_part = 0;
    for (const QuerySpace space : {QuerySpace::kLatent, QuerySpace::kHead}) {
      if (space == QuerySpace::kHead && GetParam().latent_only) continue;
      CaseRun run(case_of(text, space));
      for (const Backend* backend : backends()) {
        if (!backend->info().on_device) continue;
        const AttentionShape& shape = run.problem().shape();
        if (backend->supports(shape, device) &&
            backend->plan(shape, device)->workspace_bytes() > kMostWorkspace)
          continue;
        const Verdict verdict = run.judge(*backend, machine);
        EXPECT_NE(verdict.outcome, Outcome::kFailed) << verdict.backend << " on \"" << to_text(verdict.c)
                                                     << "\": " << verdict.reason << "\n  " << verdict.plan;
        if (verdict.outcome == Outcome::kPassed) ++took_part;
      }
    }
    EXPECT_GE(took_part, 2) << text << ": cuda-naive takes every shape, and some other backend should";
  }
}
INSTANTIATE_TEST_SUITE_P(All, PublicFault, ::testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.name); });

/// Query 0 and key j holding the number j in every latent channel: a row's output is the mean of the numbers
/// that it sees, its LSE the logarithm of how many they are.
struct Counted {
  const char* name;
  const char* shape;
  std::vector<double> means, counts;  // of each query
};

const std::vector<Counted> kCounted = {
    // Query i of four at the end of nine keys sees keys 0 .. 5 + i.
    {"MLA_028_MeansOfFourQueries", "h4 " V3 "q4s9 b4", {2.5, 3.0, 3.5, 4.0}, {6, 7, 8, 9}},
    {"MLA_030_ThreeTokensMidDecode", "h4 " V3 "q3s8 b4", {2.5, 3.0, 3.5}, {6, 7, 8}},
    {"MLA_037_LseIsNatural", "h4 " V3 "q1s200 b16", {99.5}, {200}},
    // The window counts the query's own position 9: keys 6 .. 9.
    {"MLA_102_WindowCountsTheQuery", "h4 " V3 "q1s10 w4 b4", {7.5}, {4}},
    {"MLA_104_WindowIsApplied", "h4 " V3 "q1s64 w4 b16", {61.5}, {4}},
    {"SinkBesideTheWindow", "h4 " V3 "q1s64 w4 sink2 b16", {(60 + 61 + 62 + 63 + 0 + 1) / 6.0}, {6}},
};

class CountedKeys : public ::testing::TestWithParam<Counted> {};

TEST_P(CountedKeys, AreTheRightOnes) {
  MLA_NEEDS_GPU();
  const Device& device = *mla::testing::test_gpu().device;
  const Counted& counted = GetParam();
  const Case c = case_of(counted.shape, QuerySpace::kLatent);
  const MlaDims& d = c.shape.dims;
  const auto keys = static_cast<std::size_t>(c.shape.batch.front().kv_len), queries = counted.means.size();
  const auto heads = static_cast<std::size_t>(d.num_heads), latent = static_cast<std::size_t>(d.kv_lora_rank),
             width = static_cast<std::size_t>(d.latent_width());
  Values values;
  values.softmax_scale = 1.0;
  values.q.assign(queries * heads * width, 0.0);
  values.latent.assign(keys * width, 0.0);
  for (std::size_t j = 0; j < keys; ++j)
    for (std::size_t i = 0; i < latent; ++i) values.latent[j * width + i] = static_cast<double>(j);
  const Problem problem(c, std::move(values));
  int took_part = 0;
  for (const Backend* backend : backends()) {
    if (!backend->info().on_device || !backend->supports(c.shape, device)) continue;
    Stage stage(problem, device_memory(device));
    const Execution run = execute(*backend, stage, problem, device, {});
    ASSERT_EQ(run.failure, "") << backend->info().name;
    for (std::size_t i = 0; i < queries * heads; ++i) {
      const double mean = counted.means[i / heads];
      for (std::size_t channel = 0; channel < latent; ++channel)  // weights and output are rounded to bf16
        ASSERT_NEAR(run.out[i * latent + channel], mean, mean * 0x1p-7)
            << backend->info().name << " row " << i;
      ASSERT_NEAR(run.lse[i], std::log(counted.counts[i / heads]), 1e-5)
          << backend->info().name << " row " << i;
    }
    ++took_part;
  }
  EXPECT_GE(took_part, 2);
}
INSTANTIATE_TEST_SUITE_P(All, CountedKeys, ::testing::ValuesIn(kCounted),
                         [](const auto& counted) { return std::string(counted.param.name); });

// MLA-027: less shared memory than the widest tile wants: a smaller one, or a sentence with both numbers.
TEST(PublicFaults, MLA_027_LessSharedMemory) {
  const Backend* backend = find_backend("cuda-splitkv");
  if (backend == nullptr) GTEST_SKIP() << "this build has no cuda-splitkv";
  Device device = load_device("h200");
  for (const char* heads : {"h16 ", "h128 "}) {
    const AttentionShape shape = parse_shape(std::string("decode latent ") + heads + V3 "4q1s1k");
    device.shared_memory_per_block = 101376;
    EXPECT_EQ(backend->supports(shape, device).why, "");
    device.shared_memory_per_block = 49152;
    EXPECT_EQ(backend->supports(shape, device).why,
              "kv_lora_rank 512 needs more shared memory than the 49152 bytes of 'h200'");
  }
}

#undef SMALL
#undef V3

}  // namespace
