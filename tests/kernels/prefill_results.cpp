// SPDX-License-Identifier: Apache-2.0
// The three prefill backends: refusals on any machine, results on a GPU.
#include <gtest/gtest.h>

#include "attention_cases.hpp"

namespace {

using namespace mla;
using mla::testing::expect_cases;
using mla::testing::refusal;

class Prefill : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (find_backend(GetParam()) == nullptr) GTEST_SKIP() << "this build has no " << GetParam();
  }
};

TEST_P(Prefill, SaysWhyNot) {
  EXPECT_EQ(refusal(GetParam(), "prefill head h16 4q1k"), "");
  EXPECT_EQ(refusal(GetParam(), "decode head h16 4q1s1k"), "it is a prefill kernel; the phase is decode");
  EXPECT_EQ(refusal(GetParam(), "prefill latent h16 q1k"),
            "the query is absorbed already (latent space), but K is expanded for a query per head");
  EXPECT_EQ(refusal(GetParam(), "prefill head h16 q1k topk64"),
            "topk is 64, but each token's own keys are expanded in decode only");
  EXPECT_EQ(refusal(GetParam(), "prefill head h16 q1k q:f32 out:f32"), "queries are bf16 or f16, not f32");
}

TEST_P(Prefill, Results) {
  MLA_NEEDS_GPU();
  // The four widths, lengths around the tiles of 32, 64, 128 and 256, ragged batches with empty and one-token
  // requests, contexts before the new tokens, causal and full.
  expect_cases(GetParam(),
               {"prefill head h4 l512 r64 p128 v128 q1_q31_q32_q33_q255_q256_q257 b64",
                "prefill head h3 l512 r64 p128 v128 q600 b16 full",
                "prefill head h2 l256 r32 p64 v64 q127_q128_q129s300_q5s64 b32",
                "prefill head h2 l512 r64 p192 v256 q63_q64s200_q65 b64",
                "prefill head h2 l512 r0 p128 v128 q100s137_q1s400 b128",
                "prefill head h2 l512 r64 p64 v128 q130_q40s41 b1",
                "prefill head h2 l512 r64 p128 v128 q70s300_q20 b64 q:f16 out:f16 cache:f16",
                "prefill head h2 l512 r64 p128 v128 q70s300_q20 b64 out:f32 strided=yes",
                "prefill head h2 l512 r64 p128 v128 q70s300_q20 b5 cache:bf16_split",
                "prefill head h2 l512 r64 p128 v128 q200s900_q20 w64 sink4 b16",
                "prefill head h2 l512 r64 p128 v128 q300s700 w257 b16",
                "prefill head h4 l32 r8 p16 v40 q12_q7s12_q3s8 b4",
                "prefill head h2 l512 r64 p128 v128 q100s1000 b64 values=dominant",
                "prefill head h2 l512 r64 p128 v128 q100s1000 b64 values=extreme",
                "prefill head h2 l512 r64 p128 v128 q300s1000 b64 full values=extreme",
                "prefill head h2 l512 r64 p128 v128 q100s1000 b64 values=extreme q:f16 out:f16 cache:f16",
                "prefill head h2 l512 r64 p128 v128 q100s1000 b64 values=dominant seed=2",
                "prefill head h2 l512 r64 p128 v128 q300s1000 b64 full values=dominant seed=3",
                "prefill head h2 l512 r64 p128 v128 q300s1000 b64 full values=dominant score_std=30",
                "prefill head h2 l512 r64 p128 v128 q100s1000 b64 values=constant",
                "prefill head h2 l512 r64 p128 v128 q64s100 b64 first_block=58255"});
}

// MLA-041: a request without context beside one with; MLA-043: the dominant key at the edge of a chunk.
TEST_P(Prefill, ContextsOfPublicFaults) {
  MLA_NEEDS_GPU();
  expect_cases(GetParam(), {"prefill head h4 l32 r8 p16 v16 q3_q3s8 b4",
                            "prefill head h4 l32 r8 p16 v16 q5s38 b4 values=dominant seed=1",
                            "prefill head h4 l32 r8 p16 v16 q5s38 b4 values=dominant seed=2",
                            "prefill head h4 l32 r8 p16 v16 q5s38 b4 values=dominant seed=3"});
}

INSTANTIATE_TEST_SUITE_P(Backends, Prefill,
                         ::testing::Values("cuda-prefill-varlen", "cuda-prefill-ragged",
                                           "cuda-prefill-paged"),
                         [](const auto& param) {
                           std::string name = param.param;
                           name.erase(0, name.rfind('-') + 1);
                           return name;
                         });

// Eight-bit caches are decoded on the way to the dense rows; the paged kernel refuses them.
TEST(PrefillFp8, Results) {
  MLA_NEEDS_GPU();
  for (const char* backend : {"cuda-prefill-varlen", "cuda-prefill-ragged"}) {
    expect_cases(backend, {"prefill head h2 l512 r64 p128 v128 q70s300_q20 b64 cache:fp8",
                           "prefill head h2 l512 r64 p128 v128 q70s300_q20 b64 cache:fp8_ds_mla"});
  }
}

TEST(PrefillFp8, PagedSaysWhyNot) {
  if (find_backend("cuda-prefill-paged") == nullptr) GTEST_SKIP() << "this build has no cuda-prefill-paged";
  EXPECT_EQ(refusal("cuda-prefill-paged", "prefill head h16 q1k cache:fp8_ds_mla"),
            "pages are read straight into tensor-core operands of the query's type, bf16, so a cache of "
            "fp8_ds_mla does not do");
}

// The context does not fit the bounded workspace at once.
TEST(PrefillRagged, ManyChunks) {
  MLA_NEEDS_GPU();
  expect_cases("cuda-prefill-ragged", {"prefill head h128 l512 r64 p128 v128 q4s20000_q2_q3s17000 b64"});
}

}  // namespace
