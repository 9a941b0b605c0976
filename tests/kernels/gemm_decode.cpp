// SPDX-License-Identifier: Apache-2.0
// cuda-gemm: how a ragged batch is grouped, its refusals, and its results on a GPU in both spaces.
#include <gtest/gtest.h>

#include "attention_cases.hpp"
#include "gemm/groups.hpp"

namespace {

using namespace mla;
using kernels::gemm::group_segments;
using kernels::gemm::GroupSizes;
using kernels::gemm::SegmentSizes;
using mla::testing::expect_cases;
using mla::testing::refusal;

TEST(GemmGroups, EveryOneIsInExactlyOneGroupThatHoldsIt) {
  std::vector<SegmentSizes> segments;
  for (std::int32_t i = 0; i < 200; ++i) segments.push_back({i % 4, (i * i * 31) % 3000});
  const auto groups = group_segments(segments, std::int64_t{1} << 16);
  std::int32_t next = 0;
  for (const GroupSizes& g : groups) {
    EXPECT_EQ(g.first, next);
    EXPECT_EQ(g.keys % 16, 0);
    for (std::int32_t i = g.first; i < g.first + g.count; ++i) {
      EXPECT_GE(g.queries, segments[static_cast<std::size_t>(i)].queries);
      EXPECT_GE(g.keys, segments[static_cast<std::size_t>(i)].keys);
    }
    if (g.count > 1) {
      EXPECT_LE(std::int64_t{g.count} * g.queries * g.keys, std::int64_t{1} << 16);
    }
    next += g.count;
  }
  EXPECT_EQ(next, 200);
}

TEST(GemmGroups, EqualRequestsShareOneProductAndUnequalOnesDoNot) {
  const std::vector<SegmentSizes> equal(64, {1, 4096});
  EXPECT_EQ(group_segments(equal, std::int64_t{1} << 30).size(), 1U);
  const std::vector<SegmentSizes> unequal = {{1, 64}, {1, 8192}, {1, 64}};
  EXPECT_EQ(group_segments(unequal, std::int64_t{1} << 30).size(), 3U);
  EXPECT_TRUE(group_segments({}, 1).empty());
}

TEST(CudaGemm, SaysWhyNot) {
  if (find_backend("cuda-gemm") == nullptr)
    GTEST_SKIP() << "this build has no cuda-gemm (no CUDA or no cublasLt.h)";
  EXPECT_EQ(refusal("cuda-gemm", "decode head h16 4q1s1k"), "");
  EXPECT_EQ(refusal("cuda-gemm", "decode latent h16 4q1s1k"), "");
  EXPECT_EQ(refusal("cuda-gemm", "prefill head h16 q1k"), "it is a decode kernel; the phase is prefill");
  EXPECT_EQ(refusal("cuda-gemm", "decode latent h16 l100 4q1s1k"),
            "kv_lora_rank is 100, but 16-byte loads need a multiple of 8");
  EXPECT_EQ(refusal("cuda-gemm", "decode latent h16 4q1s1k out:e4m3"),
            "outputs are of the query's type, bf16, or f32, not e4m3");
  // Groups bound the workspace, however large the batch.
  EXPECT_EQ(refusal("cuda-gemm", "decode latent h128 1000q1s1m"), "");
}

TEST(CudaGemm, Results) {
  MLA_NEEDS_GPU();
  expect_cases("cuda-gemm",
               {"decode latent h16 l512 r64 q1s1_q1s0_q1s63_q1s64_q1s65_q1s1000 b64",
                "decode latent h128 l512 r64 4q1s257 b1",
                "decode latent h5 l512 r64 q4s9_q4s70 b16 strided=yes",
                "decode latent h3 l256 r32 q8s8_q8s33_q1s500 b48 q:f16 out:f16 cache:f16",
                "decode latent h63 l128 r0 2q3s200 b128 out:f32",
                "decode latent h16 l512 r64 2q1s777 b64 cache:fp8",
                "decode latent h16 l512 r64 2q1s777 b64 cache:fp8_ds_mla",
                "decode latent h2 l512 r64 2q1s200 b5 cache:bf16_split",
                "decode latent h4 l512 r64 q1s900_q4s1000 w100 sink4 b16",
                "decode latent h4 l512 r64 2q1s300 full b16",
                "decode latent h4 l512 r64 q1s300_q2s8_q1s0 topk64 b16 index=front",
                "decode latent h4 l512 r64 2q1s300 topk16 b16 index=none",
                "decode latent h4 l32 r8 p16 v16 q1s5_q3s17 b4 values=dominant",
                "decode latent h40 l256 r32 2q1s4097 b64 values=extreme",
                "decode latent h2 l512 r64 2q1s100 b64 first_block=58255",
                "decode head h16 l512 r64 p128 v128 q1s1_q1s0_q1s63_q1s64_q1s65_q1s1000 b64",
                "decode head h20 l512 r64 p192 v256 q1s129_q2s300 b32",
                "decode head h3 l256 r32 p64 v64 q8s8_q8s33_q1s500 b48 q:f16 out:f16 cache:f16 strided=yes",
                "decode head h16 l512 r64 p128 v128 2q1s777 b64 cache:fp8",
                "decode head h4 l512 r64 p128 v128 q1s300_q2s8 topk65 b16 index=duplicates"});
}

}  // namespace
