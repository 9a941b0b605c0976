// SPDX-License-Identifier: Apache-2.0
// What every decode backend for GPUs must take, asked about described GPUs: needs none.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "mla/backend.hpp"

namespace {

using namespace mla;

struct Taken {
  const char* backend;
  std::vector<const char*> spaces;
};
const Taken kDecode[] = {{"cuda-naive", {"latent", "head"}},
                         {"cuda-splitkv", {"latent", "head"}},
                         {"cuda-gemm", {"latent", "head"}},
                         {"cuda-expand", {"head"}}};

class Supports : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Backend* simplest = find_backend("cuda-naive");
    if (simplest == nullptr) GTEST_SKIP() << "this build has no CUDA backends";
    const Support built = simplest->supports(parse_shape("decode latent h1 q1s1"), load_device(GetParam()));
    if (!built) GTEST_SKIP() << built.why;  // the build's list of architectures has none for this GPU
  }
  /// Every decode backend takes `words` on the GPU.
  static void expect(const std::string& words) {
    const Device gpu = load_device(GetParam());
    for (const Taken& taken : kDecode) {
      const Backend* backend = find_backend(taken.backend);
      if (backend == nullptr) continue;
      for (const char* space : taken.spaces) {
        const AttentionShape shape = parse_shape(fmt::format("decode {} {}", space, words));
        EXPECT_EQ(backend->supports(shape, gpu).why, "") << taken.backend << " " << space << " " << words;
      }
    }
  }
};

TEST_P(Supports, EveryHeadCountAndNumberOfNewTokens) {
  for (int heads = 1; heads <= 128; ++heads) {
    for (const int q_len : {1, heads % 7 + 2}) expect(fmt::format("h{} 2q{}s70_q1s0", heads, q_len));
  }
}

TEST_P(Supports, EveryWidthTypeAndFormat) {
  for (const int latent : {128, 256, 512}) {
    for (const int rope : {0, 32, 64}) {
      for (const char* types : {"cache:bf16", "q:f16 out:f16 cache:f16", "cache:bf16_split",
                                "q:f16 out:f16 cache:f16_split", "out:f32", "cache:fp8"}) {
        expect(fmt::format("h20 l{} r{} p128 v128 q1s500_q8s33 {}", latent, rope, types));
      }
    }
  }
  expect("h128 q1s4k cache:fp8_ds_mla");  // the 656-byte row, which exists for L 512 and R 64
}

TEST_P(Supports, EveryMaskBlockAndIndex) {
  for (int block = 1; block <= 128; ++block) expect(fmt::format("h16 2q2s300 b{}", block));
  expect("h16 2q8s300 w100 sink4");
  expect("h16 2q3s300 full");
  expect("h128 2q1s9k topk2048");
}

/// cuda-latent is for one architecture, and says so; there it takes what decode asks for with 16-bit rows.
TEST(LatentSupports, TakesDecodeOnHopperAlone) {
  const Backend* latent = find_backend("cuda-latent");
  if (latent == nullptr) GTEST_SKIP() << "this build has no CUDA backends";
  const auto why = [&](const std::string& words, const char* gpu = "h200") {
    return latent->supports(parse_shape(words), load_device(gpu)).why;
  };
  if (const std::string none = why("decode latent h1 q1s1"); !none.empty()) GTEST_SKIP() << none;
  for (const char* space : {"latent", "head"}) {
    for (int heads = 1; heads <= 128; ++heads) {
      EXPECT_EQ(why(fmt::format("decode {} h{} q{}s70_q1s0", space, heads, heads % 8 + 1)), "");
    }
    for (const int latent_rank : {256, 512}) {
      for (const int rope : {0, 32, 64}) {
        for (const char* types : {"cache:bf16", "q:f16 out:f16 cache:f16", "cache:bf16_split", "out:f32"}) {
          EXPECT_EQ(why(fmt::format("decode {} h20 l{} r{} p128 v128 q1s500_q8s33 {}", space, latent_rank,
                                    rope, types)),
                    "");
        }
      }
    }
    for (const int block : {1, 16, 32, 48, 64, 128}) {
      EXPECT_EQ(why(fmt::format("decode {} h16 2q8s300 w100 sink4 b{}", space, block)), "");
    }
  }
  EXPECT_NE(why("decode latent h16 q1s70", "a100-80gb").find("9.0"), std::string::npos);
  EXPECT_NE(why("decode latent h16 q1s70 cache:fp8").find("fp8"), std::string::npos);
  EXPECT_NE(why("decode latent h16 q1s7k topk2048").find("2048"), std::string::npos);
  EXPECT_NE(why("decode latent h16 l128 q1s70").find("128"), std::string::npos);
  EXPECT_NE(why("prefill latent h16 q70").find("prefill"), std::string::npos);
}

TEST_P(Supports, SaysWhyNotForRowsThatStartAnywhere) {
  const Backend* splitkv = find_backend("cuda-splitkv");
  ASSERT_NE(splitkv, nullptr);
  const auto why = [&](const char* shape) {
    return splitkv->supports(parse_shape(shape), load_device(GetParam())).why;
  };
  EXPECT_EQ(
      why("decode latent h16 l256 r64 4q1s1k cache:fp8_ds_mla"),
      "the rotary part of fp8_ds_mla rows with kv_lora_rank 256 starts at byte 264, but 16-byte copies need "
      "a multiple of 16");
  EXPECT_EQ(why("decode latent h16 l512 r32 4q1s1k cache:fp8_ds_mla"), "");
}

INSTANTIATE_TEST_SUITE_P(Described, Supports, ::testing::Values("h200", "a100-80gb"), [](const auto& gpu) {
  std::string name(gpu.param);
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

}  // namespace
