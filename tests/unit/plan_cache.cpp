// SPDX-License-Identifier: Apache-2.0
// Bytes of the cache: formats, layers, models.
#include <gtest/gtest.h>

#include <string>

#include "expect_error.hpp"
#include "mla/capacity.hpp"
#include "plan_models.hpp"

namespace mla::capacity {
namespace {

using test::refused;

CacheCost cost(const ModelConfig& model, const char* format, const char* engine = "none", int tp = 1,
               bool mtp = false) {
  return cache_cost(model, find_kv_format(format), find_engine(engine), tp, mtp);
}

TEST(PlanCache, OneRowOfDeepSeekV3InEveryFormat) {
  const ModelConfig v3 = test::deepseek_v3();
  const struct {
    const char* format;
    std::int64_t bytes;
  } cases[] = {
      {"bf16", 1152},         // 576 x 2
      {"f16", 1152},          //
      {"f32", 2304},          //
      {"fp8", 576},           //
      {"fp8_ds_mla", 656},    // 512 + 4 x 4 + 64 x 2
      {"nvfp4_ds_mla", 432},  // 256 + 32 + 16 + 128
      {"q8_0", 612},          // 576 x 34 / 32
      {"q6_0", 468},          // 576 x 26 / 32
      {"q5_1", 432},          // 576 x 24 / 32
      {"q5_0", 396},          // 576 x 22 / 32
      {"q4_1", 360},          // 576 x 20 / 32
      {"q4_0", 324},          // 576 x 18 / 32
      {"iq4_nl", 324},        //
      {"nvfp4", 324},         // 576 x 9 / 16
      {"fp4_e2m1", 324},      //
      {"int8", 576},          //
  };
  for (const auto& c : cases) {
    const auto parts = cache_parts(v3, v3.layers[0], find_kv_format(c.format), find_engine("none"));
    ASSERT_EQ(parts.size(), 1u) << c.format;
    EXPECT_EQ(parts[0].entry_bytes(), c.bytes) << c.format;
    EXPECT_FALSE(parts[0].formula.empty());
  }
}

TEST(PlanCache, AliasesAndUnknownFormats) {
  EXPECT_EQ(find_kv_format("auto").name, "bf16");
  EXPECT_EQ(find_kv_format("FP16").name, "f16");
  EXPECT_EQ(find_kv_format("fp8_e4m3").name, "fp8");
  refused([&] { return find_kv_format("fp9"); }, {"fp9"});
  refused([&] { return find_kv_format(""); }, {"''"});
}

TEST(PlanCache, FormatsWithoutALayoutAreRefused) {
  ModelConfig small = test::deepseek_v3();
  small.mla->kv_lora_rank = 256;
  const ModelConfig llama = test::llama_31_8b();
  refused([&] { return cost(small, "fp8_ds_mla"); }, {"fp8_ds_mla"});
  refused([&] { return cost(small, "nvfp4_ds_mla"); }, {"256"});
  refused([&] { return cost(llama, "fp8_ds_mla"); }, {"llama-3.1-8b"});
  refused([&] { return cost(test::deepseek_v3(), "fp8_per_token_head"); }, {"latent row", "KV heads"});
  refused([&] { return cost(test::deepseek_v4_flash(), "int8_per_token_head"); }, {"int8_per_token_head"});
  ModelConfig odd = test::deepseek_v3();
  odd.mla->kv_lora_rank = 500;
  refused([&] { return cost(odd, "q8_0"); }, {"564"});
  refused([&] { return mixed_kv_format(find_kv_format("q8_0"), find_kv_format("fp8_ds_mla")); },
          {"fp8_ds_mla"});
}

TEST(PlanCache, MlaIsNotDividedByTensorParallelism) {
  const ModelConfig v3 = test::deepseek_v3();
  for (const int tp : {1, 2, 8, 128}) EXPECT_EQ(cost(v3, "bf16", "vllm", tp).bytes_per_token, 70272) << tp;
  EXPECT_EQ(cost(v3, "bf16", "vllm", 1, true).bytes_per_token, 71424);  // 62 x 1,152
}

TEST(PlanCache, KvHeadsAreDividedDownToOne) {
  const ModelConfig llama = test::llama_31_70b();  // 80 x 8 x 256 x 2 = 327,680
  EXPECT_EQ(cost(llama, "bf16").bytes_per_token, 327680);
  EXPECT_EQ(cost(llama, "bf16", "vllm", 4).bytes_per_token, 81920);
  EXPECT_EQ(cost(llama, "bf16", "vllm", 8).bytes_per_token, 40960);
  EXPECT_EQ(cost(llama, "bf16", "vllm", 16).bytes_per_token, 40960);
  EXPECT_EQ(cost(llama, "bf16").k_bytes_per_token, 163840);
  EXPECT_EQ(cost(llama, "fp8_per_token_head").bytes_per_token, 80 * 8 * (256 + 8));
}

TEST(PlanCache, KAndVMayBeStoredDifferently) {
  const ModelConfig llama = test::llama_31_8b();  // 1,024 elements of K and of V a layer
  const KvFormat format = mixed_kv_format(find_kv_format("iq4_nl"), find_kv_format("f16"));
  const CacheCost mixed = cache_cost(llama, format, find_engine("llama.cpp"));
  EXPECT_EQ(mixed.k_bytes_per_token * 1024, 18.0 * 1024 * 1024);  // 32 x 1,024 x 18 / 32 a token
  EXPECT_EQ(mixed.v_bytes_per_token * 1024, 64.0 * 1024 * 1024);
}

TEST(PlanCache, WhatEnginesKeepOfMla) {
  const ModelConfig v3 = test::deepseek_v3();
  const CacheCost expanded = cost(v3, "f16", "llama.cpp@2024-01");
  EXPECT_EQ(expanded.k_bytes_per_token, 61 * 128 * 192 * 2);
  EXPECT_EQ(expanded.v_bytes_per_token, 61 * 128 * 128 * 2);
  EXPECT_EQ(cost(v3, "f16", "llama.cpp@2025-06").bytes_per_token, 61 * (576 + 512) * 2);
  EXPECT_EQ(cost(v3, "f16", "llama.cpp").bytes_per_token, 70272);
  EXPECT_EQ(cost(v3, "q8_0", "ik_llama.cpp").bytes_per_token, 37332);
}

TEST(PlanCache, IndexKeysFollowTheirLayers) {
  const ModelConfig glm = test::glm_52();
  EXPECT_EQ(cost(glm, "bf16", "vllm").index_bytes_per_token, 21 * 132);
  EXPECT_EQ(cost(glm, "bf16", "vllm").index_layers, 21);
  // SGLang charges layers that share an indexer too.
  EXPECT_EQ(cost(glm, "bf16", "sglang").index_bytes_per_token, 78 * 132);
  // Prediction layer included: 79 x 656 + 22 x 132 = 54,728, as logged by vLLM (local-inference-lab/vllm#82).
  const CacheCost all = cost(glm, "fp8_ds_mla", "vllm", 1, true);
  EXPECT_EQ(all.bytes_per_token + all.index_bytes_per_token, 54728);
  ModelConfig pooled = test::deepseek_v32();
  pooled.indexer->key_pool = 4;
  EXPECT_EQ(cost(pooled, "bf16").index_bytes_per_token, 61 * 33);
}

TEST(PlanCache, WindowsAndStatesArePerSequence) {
  const CacheCost gemma = cost(test::gemma_3_27b(), "bf16");
  EXPECT_EQ(gemma.full_layers, 10);
  EXPECT_EQ(gemma.window_layers, 52);
  EXPECT_EQ(gemma.bytes_per_token, 10 * 16 * 256 * 2);
  EXPECT_EQ(gemma.window_bytes, std::int64_t{52} * 1024 * 16 * 256 * 2);
  EXPECT_EQ(cost(test::gemma_3_27b(), "bf16", "ik_llama.cpp").bytes_per_token, 62 * 16 * 256 * 2);

  const CacheCost linear = cost(test::kimi_linear(), "bf16");
  EXPECT_EQ(linear.bytes_per_token, 7 * 1152);
  EXPECT_EQ(linear.state_bytes, 43417600);  // 20 x (32 x 128 x 128 x 4 + 3 x 3 x 32 x 128 x 2)
  EXPECT_EQ(cost(test::kimi_linear(), "bf16", "vllm", 2).state_bytes, 43417600 / 2);
}

TEST(PlanCache, DeepSeekV4GrowsByCompressedEntries) {
  const CacheCost v4 = cost(test::deepseek_v4_flash(), "fp8");
  // 21 x 584 / 4 + 20 x 584 / 128 a token, 21 x 132 / 4 of index keys.
  EXPECT_DOUBLE_EQ(v4.bytes_per_token, 21 * 584 / 4.0 + 20 * 584 / 128.0);
  EXPECT_DOUBLE_EQ(v4.index_bytes_per_token, 21 * 33.0);
  // 43 windows of 128 x 584; states: 21 x 8 x (8,192 + 2,048), 20 x 128 x 4,096.
  EXPECT_EQ(v4.window_bytes, std::int64_t{43} * 128 * 584 + 21 * 8 * (8192 + 2048) + 20 * 128 * 4096);
}

TEST(PlanCache, FormulasSayWhatTheyCount) {
  const CacheCost v32 = cost(test::deepseek_v32(), "bf16");
  ASSERT_EQ(v32.lines.size(), 2u);
  EXPECT_EQ(v32.lines[0].formula, "61 layers x (512 + 64) x 2 B");
  EXPECT_EQ(std::get<std::int64_t>(v32.lines[0].value), 70272);
  EXPECT_EQ(v32.lines[1].formula, "61 layers x (128 + 4 scale) B");
  EXPECT_EQ(std::get<std::int64_t>(v32.lines[1].value), 8052);
  EXPECT_NE(v32.lines[0].source.find("deepseek-v3.2"), std::string::npos);
}

TEST(PlanCache, OtherKindsOfAttentionForTheSameWidths) {
  const AttentionBytes v3 = attention_bytes(test::deepseek_v3());
  EXPECT_EQ(v3.mha, 81920);           // 128 x (192 + 128) x 2
  EXPECT_EQ(v3.mha_textbook, 65536);  // 128 x (128 + 128) x 2
  EXPECT_EQ(v3.gqa8, 4096);
  EXPECT_EQ(v3.mqa, 512);  // MLA's 1,152 are 2.25 times that: it is not the smallest
  EXPECT_EQ(attention_bytes(test::llama_31_8b()).mha, 16384);
  refused([&] { return attention_bytes(test::deepseek_v4_flash()); }, {"deepseek-v4-flash"});
}

TEST(PlanCache, WindowSavingsKeepReadsAndMemoryApart) {
  const WindowSavings small = window_savings(100, 32, 4, 16);
  EXPECT_EQ(small.tokens_read, 36);
  EXPECT_EQ(small.tokens_skipped, 64);
  EXPECT_EQ(small.full_cache_tokens, 100);
  EXPECT_EQ(window_savings(10000, 4096, 4, 16).blocks_touched, 257);
  EXPECT_EQ(window_savings(5000, 4096, 4, 16).blocks_touched, 258);
  EXPECT_EQ(window_savings(1000, 4096, 4, 16).blocks_touched, 63);
  EXPECT_EQ(window_savings(10000, 4096, 4, 16).blocks_total, 625);
  EXPECT_EQ(window_savings(10000, 4096, 4, 16).ring_cache_tokens, 257 * 16);
  EXPECT_EQ(window_savings(0, 4096, 4, 16).tokens_read, 0);
  // The sink reaches into the window: nothing is counted twice.
  EXPECT_EQ(window_savings(10, 8, 6, 4).tokens_read, 10);
  EXPECT_EQ(window_savings(10, 8, 6, 4).blocks_touched, 3);
  refused([&] { return window_savings(10, 0, 4, 16); }, {"window 0"});
  refused([&] { return window_savings(-1, 4, 4, 16); }, {"length -1"});
}

TEST(PlanCache, WindowSavingsAgreeWithCountingOneByOne) {
  for (int length = 0; length <= 70; ++length) {
    for (const int window : {1, 3, 16, 40}) {
      for (const int sink : {0, 1, 5, 20}) {
        for (const int block : {1, 4, 7}) {
          std::int64_t read = 0;
          std::int64_t blocks = 0;
          for (int b = 0; b * block < length; ++b) {
            bool touched = false;
            for (int i = b * block; i < std::min(length, (b + 1) * block); ++i) {
              const bool seen = i >= length - window || i < sink;
              read += seen ? 1 : 0;
              touched = touched || seen;
            }
            blocks += touched ? 1 : 0;
          }
          const WindowSavings got = window_savings(length, window, sink, block);
          ASSERT_EQ(got.tokens_read, read) << length << ' ' << window << ' ' << sink << ' ' << block;
          ASSERT_EQ(got.blocks_touched, blocks) << length << ' ' << window << ' ' << sink << ' ' << block;
        }
      }
    }
  }
}

TEST(PlanCache, ProductsThatLeave64BitsAreErrors) {
  CachePart part{.k_bytes = std::int64_t{1} << 40};
  refused([&] { return part_bytes(part, std::int64_t{1} << 40); }, {"64 bits"});
}

TEST(PlanCache, EnginesByVersionAndMonth) {
  EXPECT_EQ(find_engine("vllm").since, "0.24");
  EXPECT_EQ(find_engine("vllm@0.8.3.dev172").since, "0.8");
  EXPECT_EQ(find_engine("vllm@0.5.0.post1").since, "");
  EXPECT_EQ(find_engine("vllm@0.9").since, "0.8");
  EXPECT_EQ(find_engine("vllm@0.7").since, "0.7.1") << "the newest of 0.7";
  EXPECT_EQ(find_engine("vllm@0.7.0").since, "0.6");
  EXPECT_EQ(find_engine("vllm@0.7.3").since, "0.7.1");
  EXPECT_EQ(find_engine("vllm@0.15.2rc1").since, "0.10");
  EXPECT_EQ(find_engine("vllm@0.21.0-cu129").since, "0.16");
  EXPECT_EQ(find_engine("vllm@v0.11").since, "0.10");
  EXPECT_EQ(find_engine("vllm@2025-11-06").since, "0.10");
  EXPECT_EQ(find_engine("vllm@2026-05").since, "0.16");
  EXPECT_EQ(find_engine("vllm@2026-08").since, "0.24");
  EXPECT_EQ(find_engine("llama.cpp@b6000").since, "b5100");
  EXPECT_EQ(find_engine("trtllm").name, "tensorrt-llm");
  refused([&] { return find_engine("vlllm"); }, {"vlllm"});
  refused([&] { return find_engine("vllm@"); }, {"version"});
  refused([&] { return find_engine("vllm@new"); }, {"new"});
  refused([&] { return find_engine(""); }, {"''"});
}

TEST(PlanCache, IndexKeysByEngine) {
  // GLM-5.2: 21 of 78 layers have an indexer with keys of 128.
  const ModelConfig glm = load_model("glm-5.2");
  const auto index = [&](const char* engine, const char* format) {
    return cache_cost(glm, find_kv_format(format), find_engine(engine)).index_bytes_per_token;
  };
  EXPECT_EQ(index("vllm", "bf16"), 21 * 132);
  EXPECT_EQ(index("sglang", "bf16"), 78 * 132);
  EXPECT_EQ(index("llama.cpp", "f16"), 21 * 256);   // 2,688 MiB for 524,288 tokens, as its log says
  EXPECT_EQ(index("llama.cpp", "q8_0"), 21 * 136);  // 128 x 34 / 32
  EXPECT_EQ(index("llama.cpp@2026-02", "f16"), 0);  // dense attention
  EXPECT_EQ(index("ik_llama.cpp", "f16"), 0);
}

}  // namespace
}  // namespace mla::capacity
