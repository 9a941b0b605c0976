// SPDX-License-Identifier: Apache-2.0
// Blocks, tokens and sequences from a budget, against numbers that engines logged.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "mla/capacity.hpp"
#include "mla/device.hpp"
#include "plan/format_rules.hpp"
#include "plan_models.hpp"

namespace mla::capacity {
namespace {

using test::gib;
using test::logged_budget;
using test::refused;

TEST(PlanPools, KimiK2OnEightH200) {
  // 46.80 GiB -> 715,072 tokens (vLLM recipes): 70,272 B a token on every rank, block 64.
  PlanRequest request = logged_budget("vllm@2025-11", gib(46.8), 262144);
  request.layout.tp = 8;
  const MemoryPlan plan = plan_memory(test::kimi_k2(), request);
  EXPECT_EQ(plan.blocks, gib(46.8) / (70272 * 64));
  EXPECT_GE(plan.tokens_logged, 715008);
  EXPECT_LE(plan.tokens_logged, 715136);
  EXPECT_EQ(plan.tokens_logged % 64, 0);
}

TEST(PlanPools, PipelineStagesTakeTheSmallestPool) {
  // vllm#20665: V2-Lite, 14 + 13 layers, 12.13 and 11.33 GiB: 807,792 tokens, 788.86x of 1024.
  PlanRequest request = logged_budget("vllm@0.9", 0, 1024);
  request.layout = {.tp = 2, .pp = 2};
  request.cache_bytes = {gib(12.13), gib(11.33)};
  request.block = 16;
  const MemoryPlan plan = plan_memory(test::deepseek_v2_lite(), request);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].layers.count, 14);
  EXPECT_EQ(plan.limiting_stage, 0);
  EXPECT_EQ(plan.stages[0].pools[0].blocks, gib(12.13) / (14 * 1152 * 16));
  EXPECT_EQ(plan.stages[1].pools[0].blocks, gib(11.33) / (13 * 1152 * 16));
  EXPECT_GE(plan.tokens_logged, 807232);
  EXPECT_LE(plan.tokens_logged, 807888);
  EXPECT_NEAR(plan.concurrency_logged, 788.86, 0.6);
}

TEST(PlanPools, EverySequenceNeedsEveryStage) {
  // Stages of 7, 7, 7 and 6 of Kimi-Linear's layers; 1, 2, 2 and 2 of them keep rows of 1,152 B. SGLang's states take
  // 0.9 / 1.9 of 20 GiB, so 20 GiB / 1.9 is left for rows: the 65,536 tokens of a sequence fit 149 times into one
  // layer's and 74 times into two layers'. The 6 layers with a state of stage 0 have the smallest pool of states.
  PlanRequest request = logged_budget("sglang", gib(20), 65536);
  request.layout = {.pp = 4};
  const MemoryPlan plan = plan_memory(test::kimi_linear(), request);
  ASSERT_EQ(plan.stages.size(), 4u);
  EXPECT_EQ(plan.stages[0].sequences, 149);
  EXPECT_EQ(plan.stages[1].sequences, 74);
  EXPECT_EQ(plan.limiting_stage, 1);
  EXPECT_EQ(plan.sequences, 74);
}

TEST(PlanPools, WhatAPipelineHoldsIsTheLeastOfItsStages) {
  for (const char* engine :
       {"none", "vllm", "vllm@0.6", "vllm@0.11", "sglang", "tensorrt-llm", "llama.cpp"}) {
    for (const ModelConfig& model : {test::deepseek_v3(), test::gemma_3_27b(), test::kimi_linear(),
                                     test::llama_31_8b(), test::deepseek_v32(), test::deepseek_v4_flash()}) {
      for (const int pp : {2, 3, 4, 7}) {
        for (const std::int64_t context : {1024, 8192, 65536}) {
          PlanRequest request = logged_budget(engine, gib(30), context);
          request.layout = {.pp = pp};
          if (only_fp8_entries(model, request.engine)) request.cache = find_kv_format("fp8");
          const MemoryPlan plan = plan_memory(model, request);
          std::int64_t least = plan.stages.front().sequences;
          for (const StagePlan& stage : plan.stages) least = std::min(least, stage.sequences);
          EXPECT_EQ(plan.sequences, least) << engine << ' ' << model.name << ' ' << pp << ' ' << context;
        }
      }
    }
  }
}

TEST(PlanPools, LlamaOnAnOldEngine) {
  const MemoryPlan plan = plan_memory(test::llama_31_8b(), logged_budget("vllm@0.6.2", gib(3.81), 20000));
  EXPECT_GE(plan.blocks, 1948);  // 1952 logged (vllm#10517)
  EXPECT_LE(plan.blocks, 1953);
  EXPECT_NEAR(plan.concurrency_logged, 1.56, 0.005);
}

TEST(PlanPools, KimiLinearGroupsAndRaisedBlocks) {
  // vllm#28228: 2.30 (here 2.297) GiB a rank -> 75,840 tokens and yet 2.48x of 120,000; one padding layer;
  // pages padded 1.89 %.
  PlanRequest request = logged_budget("vllm@2025-11-06", gib(2.297), 120000);
  request.layout.tp = 2;
  const MemoryPlan plan = plan_memory(test::kimi_linear(), request);
  const CachePool& pool = plan.stages[0].pools.at(0);
  EXPECT_EQ(plan.block, 960);
  EXPECT_EQ(pool.page_bytes, 1105920);  // 960 x 1,152
  EXPECT_NEAR(100.0 * static_cast<double>(pool.padding_bytes) / 1085440, 1.89, 0.005);
  ASSERT_EQ(pool.groups.size(), 4u);
  int padding = 0;
  for (const CacheGroup& group : pool.groups) padding += group.padding_layers;
  EXPECT_EQ(padding, 1);
  EXPECT_EQ(pool.blocks, 318);
  EXPECT_EQ(plan.tokens_by_blocks, 75840);
  EXPECT_NEAR(plan.concurrency_logged, 2.48, 0.005);  // 318 / (125 + 3)
  EXPECT_EQ(plan.sequences, 2);
}

TEST(PlanPools, Gemma4WithAndWithoutTheHybridManager) {
  const ModelConfig gemma = test::gemma_4_31b();
  // hf-mem PR 61: 24.54 GiB -> 26,800 tokens.
  const MemoryPlan hybrid = plan_memory(gemma, logged_budget("vllm@2026-05", gib(24.54), 32768));
  EXPECT_EQ(hybrid.stages[0].pools[0].groups.size(), 6u);
  EXPECT_EQ(hybrid.blocks, 10051);
  EXPECT_EQ(hybrid.tokens_logged, 26800);
  // tt-xla#5860: every layer at full length, block 32: 51.00 GiB -> 60,768 tokens.
  PlanRequest request = logged_budget("vllm@0.9", gib(51.0), 32768);
  request.block = 32;
  EXPECT_NEAR(static_cast<double>(plan_memory(gemma, request).tokens_logged), 60768, 32);
}

TEST(PlanPools, BlocksOfOneSequenceInAHybrid) {
  // gpt-oss shape: 18 full and 18 window layers. Full ceil(8192 / 16) = 512; window 127 + 1024 tokens: 72 +
  // 1.
  ModelConfig model = test::heads_model({"gpt-oss", 36, 64, 8, 64, 2880, 2880, 201088, 131072});
  for (std::size_t i = 0; i < model.layers.size(); i += 2) model.layers[i].window = 128;
  PlanRequest request = logged_budget("vllm@0.11", gib(10), 8192);
  request.max_batched_tokens = 1024;
  const MemoryPlan plan = plan_memory(model, request);
  const std::int64_t page = 16 * 8 * 64 * 2 * 2;
  ASSERT_EQ(plan.stages[0].pools[0].groups.size(), 2u);
  EXPECT_EQ(plan.stages[0].pools[0].block_bytes, 18 * page);
  EXPECT_EQ(plan.bytes_per_sequence, (512 + 73) * 18 * page);
}

TEST(PlanPools, GroupsArePaddedUpWhenCountsAreClose) {
  // 13 full and 12 window layers (a drafter added one): 13 + 13, not groups of 12.
  ModelConfig model = test::heads_model({"drafted", 25, 8, 8, 64, 512, 512, 1000, 8192});
  for (std::size_t i = 0; i < 12; ++i) model.layers[i].window = 128;
  const MemoryPlan plan = plan_memory(model, logged_budget("vllm@0.11", gib(1), 4096));
  const CachePool& pool = plan.stages[0].pools[0];
  ASSERT_EQ(pool.groups.size(), 2u);
  EXPECT_EQ(pool.block_bytes, 13 * 16 * 8 * 64 * 2 * 2);
  EXPECT_EQ(pool.groups[0].padding_layers + pool.groups[1].padding_layers, 1);
}

TEST(PlanPools, IndexKeysShareTheBlocks) {
  // GLM-5 on vLLM with its prediction layer: blocks of 64 tokens cost (79 x 656 + 22 x 132) x 64 for GLM-5.2.
  PlanRequest request = logged_budget("vllm@0.21", gib(20), 65536);
  request.cache = find_kv_format("fp8");  // means fp8_ds_mla for top-k sparse models
  request.with_mtp = true;
  request.layout.tp = 8;
  const MemoryPlan plan = plan_memory(test::glm_52(), request);
  EXPECT_EQ(plan.stages[0].pools[0].block_bytes, 54728 * 64);
  EXPECT_EQ(plan.cache_bytes_per_token, 54728);
}

TEST(PlanPools, DecodeContextParallelSplitsTokens) {
  PlanRequest request = logged_budget("vllm@0.16", gib(40), 131072);
  request.layout = {.tp = 8};
  const MemoryPlan whole = plan_memory(test::deepseek_v3(), request);
  request.layout.dcp = 8;
  const MemoryPlan split = plan_memory(test::deepseek_v3(), request);
  EXPECT_EQ(split.blocks, whole.blocks);
  EXPECT_EQ(split.tokens_logged, 8 * whole.tokens_logged);
  EXPECT_EQ(split.cache_bytes_per_token, 8784);  // 70,272 / 8
  // SGLang keeps index keys whole on each rank: 61 x (656 / 2 + 132) instead of 61 x 788.
  PlanRequest sglang = logged_budget("sglang", gib(40), 131072);
  sglang.cache = find_kv_format("fp8_ds_mla");
  sglang.layout = {.tp = 8, .dcp = 2};
  EXPECT_EQ(plan_memory(test::deepseek_v32(), sglang).cache_bytes_per_token, 61 * (328 + 132));
}

TEST(PlanPools, TensorRtLlmRoundsBlocksUp) {
  ModelConfig qwen = test::heads_model({"qwen1.5-7b", 32, 32, 32, 128, 4096, 11008, 151936, 32768});
  PlanRequest request = logged_budget("tensorrt-llm", gib(21.89 * 0.9), 4096);
  request.block = 64;
  EXPECT_EQ(plan_memory(qwen, request).blocks, 631);  // 630.43 (TensorRT-LLM#2268)
  request.engine = find_engine("vllm");
  EXPECT_EQ(plan_memory(qwen, request).blocks, 630);
}

TEST(PlanPools, SglangSplitsFullAndWindowPools) {
  const MemoryPlan plan = plan_memory(test::gemma_3_27b(), logged_budget("sglang", gib(40), 32768));
  ASSERT_EQ(plan.stages[0].pools.size(), 2u);
  const auto& pools = plan.stages[0].pools;
  const CachePool& full = pools[0].name == "full" ? pools[0] : pools[1];
  const CachePool& window = pools[0].name == "full" ? pools[1] : pools[0];
  EXPECT_NEAR(static_cast<double>(window.blocks) / static_cast<double>(full.blocks), 0.8, 1e-5);
  const std::int64_t used = full.blocks * full.block_bytes + window.blocks * window.block_bytes;
  EXPECT_LE(used, gib(40));
  EXPECT_GT(used, gib(39.99));
  EXPECT_EQ(plan.tokens_logged, full.blocks);
}

TEST(PlanPools, LlamaCppAllocatesWholeContexts) {
  // R1 at 163,840 with -mla 2: 10,980 MiB (ik_llama.cpp PR 237); 21.4 GiB hold two such contexts, less does
  // not.
  const std::int64_t one = std::int64_t{10980} << 20;
  EXPECT_EQ(plan_memory(test::deepseek_v3(), logged_budget("ik_llama.cpp", 2 * one, 163840)).sequences, 2);
  EXPECT_EQ(plan_memory(test::deepseek_v3(), logged_budget("ik_llama.cpp", 2 * one - 1, 163840)).sequences,
            1);
  // Window cells: min(ctx, 1024 + 512) padded to 256; the context is padded too.
  const MemoryPlan gemma = plan_memory(test::gemma_3_27b(), logged_budget("llama.cpp", gib(40), 32700));
  EXPECT_EQ(gemma.bytes_per_sequence, (std::int64_t{10} * 32768 + 52 * 1536) * 8192);
}

TEST(PlanPools, DeepSeekV4PagesOfAllKinds) {
  // vllm#54703: main 1,002,240; windows 823,680 + 786,240; C4 states 870,912; C128 states 656,640.
  PlanRequest request = logged_budget("vllm", gib(40), 65536);
  request.cache = find_kv_format("fp8");
  const MemoryPlan plan = plan_memory(test::deepseek_v4_flash(), request);
  ASSERT_EQ(plan.stages[0].pools.size(), 1u);
  std::vector<std::int64_t> pages;
  for (const CacheGroup& group : plan.stages[0].pools[0].groups) pages.push_back(group.block_bytes);
  std::sort(pages.begin(), pages.end());
  EXPECT_EQ(pages, (std::vector<std::int64_t>{656640, 786240, 823680, 870912, 1002240}));
  // Places: 22 window layers of 37,440 B, 21 indexers of 8,640 B, 20 sparse entries of 1,728 B.
  EXPECT_EQ(plan.stages[0].pools[0].block_bytes, 22 * 37440 + 21 * 8640 + 20 * 1728);
  // Before 0.24: 22 places for each of the three sizes.
  request.engine = find_engine("vllm@0.22");
  EXPECT_EQ(plan_memory(test::deepseek_v4_flash(), request).stages[0].pools[0].block_bytes,
            22 * (37440 + 8640 + 1728));
}

TEST(PlanPools, DeepSeekV4InCellsOfItsOwnKinds) {
  // llama.cpp#27680: 64,000 tokens, micro-batches of 4,096. Windows: 4,352 cells x 43 layers x 1,024 B. Entries
  // of 4: 16,128 x 21 x (1,024 B + 256 B of index key); of 128: 512 x 20 x 1,024 B. States, f32 K and score:
  // 21 x 8 x (1,024 + 256) x 8 B + 20 x 128 x 512 x 8 B.
  PlanRequest request = logged_budget("llama.cpp", gib(10), 64000);
  request.micro_batch = 4096;
  MemoryPlan plan = plan_memory(test::deepseek_v4_flash(), request);
  EXPECT_EQ(plan.bytes_per_sequence, std::int64_t{4352} * 43 * 1024 + 16128 * 21 * 1280 + 512 * 20 * 1024 +
                                         21 * 8 * 1280 * 8 + 20 * 128 * 512 * 8);
  EXPECT_EQ(plan.block, 1024);
  // q8_0: 34 B for 32 elements, states as they were.
  request.cache = find_kv_format("q8_0");
  plan = plan_memory(test::deepseek_v4_flash(), request);
  EXPECT_EQ(plan.bytes_per_sequence, std::int64_t{4352} * 43 * 544 + 16128 * 21 * 680 + 512 * 20 * 544 +
                                         21 * 8 * 1280 * 8 + 20 * 128 * 512 * 8);
}

TEST(PlanPools, DeepSeekV4AsAnEngineRefusedIt) {
  // vllm#44376 (0.22, two GPUs, prefill chunk 16,384): 30,000 tokens need 6.66 GiB; 5.44 GiB hold 13,528.
  // A sequence: ceil(30000 / 256) + 2 x (ceil(16511 / 64) + 1) + (ceil(16391 / 4) + 1) + (ceil(16511 / 8) + 1)
  // = 118 + 2 x 259 + 4099 + 2065 = 6800 blocks of 1,051,776 B = 6.661 GiB.
  PlanRequest request = logged_budget("vllm@0.22", gib(5.441), 30000);
  request.cache = find_kv_format("fp8");
  request.layout.tp = 2;
  request.max_batched_tokens = 16384;
  request.engine.reserved_blocks = 0;  // vLLM's estimate counts the null block
  const MemoryPlan plan = plan_memory(test::deepseek_v4_flash(), request);
  EXPECT_EQ(plan.bytes_per_sequence, 6800LL * 1051776);
  EXPECT_NEAR(static_cast<double>(plan.bytes_per_sequence) / test::kGiB, 6.66, 0.005);
  // 53 + 2 x 213 + 3383 + 1692 = 5554 blocks = 5.4404 GiB
  EXPECT_EQ(plan.longest_context, 13528);
}

TEST(PlanPools, RecurrentStatesWithPrefixCachingAndDrafts) {
  // Qwen3.5-122B-A10B, fp8 cache: 12 full layers of 2 heads x 256 (1,024 B a token) and 36 states of
  // 64 x 128 x 128 x 4 + 12,288 x 3 x 2 = 4,268,032 B: blocks of 4176 tokens. Logged: 21.43 GiB, 467,712
  // tokens, 11.79x of 131,072 with aligned prefix caching: 448 / (32 + 3 groups x 2).
  const ModelConfig qwen = load_model("qwen3.5-122b-a10b");
  PlanRequest request = logged_budget("vllm@0.19", gib(21.43), 131072);
  request.cache = find_kv_format("fp8");
  request.state_blocks = StateBlocks::kAligned;
  MemoryPlan plan = plan_memory(qwen, request);
  EXPECT_EQ(plan.block, 4176);
  EXPECT_EQ(plan.blocks, 448);
  EXPECT_EQ(plan.tokens_logged, 467712);
  EXPECT_DOUBLE_EQ(plan.concurrency_logged, 448.0 / 38);
  // With the prediction layer (one drafted token): 24.05 GiB, 482,080 tokens, 6.42x of 262,144. The
  // convolution keeps one column more, 4,292,608 B = 4192 tokens exactly; 13 full layers make groups of 13;
  // 462 / (63 + 3 x 3).
  request = logged_budget("vllm@0.19", gib(24.05), 262144);
  request.cache = find_kv_format("fp8");
  request.state_blocks = StateBlocks::kAligned;
  request.with_mtp = true;
  plan = plan_memory(qwen, request);
  EXPECT_EQ(plan.block, 4192);
  EXPECT_EQ(plan.blocks, 462);
  EXPECT_EQ(plan.tokens_logged, 482080);
  EXPECT_DOUBLE_EQ(plan.concurrency_logged, 462.0 / 72);
  // Without prefix caching a sequence keeps its state and the drafted token's: 462 / (63 + 3 x 2).
  request.state_blocks = StateBlocks::kOne;
  EXPECT_DOUBLE_EQ(plan_memory(qwen, request).concurrency_logged, 462.0 / 69);
  // A state at every block boundary: 63 + 3 x (63 + 1).
  request.state_blocks = StateBlocks::kAll;
  EXPECT_DOUBLE_EQ(plan_memory(qwen, request).concurrency_logged, 462.0 / (63 + 3 * 64));
  request.speculative_tokens = -1;
  refused([&] { return plan_memory(qwen, request); }, {"drafted tokens", "-1"});
}

TEST(PlanPools, LlamaCppWindowsOfManySequencesAndLargeBatches) {
  // A unified cache holds each sequence's window: pad256(min(8192, 512 x 2 + 512)) = 1536 cells.
  ModelConfig model = test::heads_model({"windows", 2, 8, 1, 64, 512, 512, 1000, 32768});
  model.layers[1].window = 512;
  PlanRequest request = logged_budget("llama.cpp", gib(1), 8192);
  request.window_sequences = 2;
  const std::int64_t cell = 2 * 64 * 2;
  EXPECT_EQ(plan_memory(model, request).bytes_per_sequence, (8192 + 1536) * cell);
  request.window_sequences = 1;
  request.micro_batch = 2048;
  EXPECT_EQ(plan_memory(model, request).bytes_per_sequence, (8192 + 2560) * cell);
  request.micro_batch = 100;  // 612 cells are padded to 768
  EXPECT_EQ(plan_memory(model, request).bytes_per_sequence, (8192 + 768) * cell);
}

TEST(PlanPools, VersionsBeyondTheCheckedOnesWarn) {
  const auto warned = [](const char* engine, const char* word) {
    const MemoryPlan plan = plan_memory(test::deepseek_v3(), logged_budget(engine, gib(40), 4096));
    return std::any_of(plan.warnings.begin(), plan.warnings.end(), [&](const std::string& one) {
      return one.find(word) != std::string::npos && one.find("0.5 to 0.26") != std::string::npos;
    });
  };
  EXPECT_TRUE(warned("vllm@0.4.3", "older"));
  EXPECT_TRUE(warned("vllm@0.31", "newer"));
  EXPECT_TRUE(warned("vllm@1.0.0", "newer"));
  for (const char* engine : {"vllm", "vllm@0.5", "vllm@0.5.0.post1", "vllm@0.26.3", "vllm@2025-11"}) {
    EXPECT_FALSE(warned(engine, "older") || warned(engine, "newer")) << engine;
  }
  EXPECT_EQ(find_engine("llama.cpp@b500").fit, VersionFit::kOlder);
  EXPECT_EQ(find_engine("llama.cpp@b6000").fit, VersionFit::kCovered);
  EXPECT_EQ(find_engine("sglang@0.6.1").fit, VersionFit::kNewer);
  EXPECT_EQ(find_engine("ik_llama.cpp@4567").fit, VersionFit::kCovered);
}

TEST(PlanPools, BlockSizesAnEngineRefuses) {
  PlanRequest request = logged_budget("vllm", gib(40), 4096);
  request.block = 20;
  refused([&] { return plan_memory(test::deepseek_v3(), request); }, {"no block size 20", "its sizes are"});
  request.block = 1000;
  refused([&] { return plan_memory(test::deepseek_v3(), request); }, {"1000", "1, 8, 16, 32, 64, 128, 256"});
  request.block = 64;
  request.cache = find_kv_format("fp8");
  refused([&] { return plan_memory(test::deepseek_v4_flash(), request); }, {"blocks of 64", "256"});
  request.block = 256;
  EXPECT_EQ(plan_memory(test::deepseek_v4_flash(), request).block, 256);
  request.cache = find_kv_format("bf16");
  refused([&] { return plan_memory(test::deepseek_v4_flash(), request); }, {"only the fp8 cache", "bf16"});
  request.block = 32;
  refused([&] { return plan_memory(test::deepseek_v32(), request); }, {"64", "32"});
  request.block = -1;
  refused([&] { return plan_memory(test::deepseek_v3(), request); }, {"-1"});
  request = logged_budget("tensorrt-llm", gib(40), 4096);
  request.block = 48;
  refused([&] { return plan_memory(test::deepseek_v3(), request); }, {"48", "power of two"});
  request = logged_budget("llama.cpp", gib(40), 4096);
  request.block = 64;
  refused([&] { return plan_memory(test::deepseek_v3(), request); }, {"64", "multiple of 256"});
}

TEST(PlanPools, AShareBesideStatesIsSaidAsThat) {
  const MemoryPlan plan =
      plan_memory(load_model("kimi-linear-48b-a3b"), logged_budget("sglang", gib(40), 32768));
  std::string formulas;
  for (const Line& line : plan.lines) formulas += line.formula + '\n';
  EXPECT_NE(formulas.find("52.6 % of the cache, the states taking 0.9 / (1 + 0.9)\n"), std::string::npos)
      << formulas;
  EXPECT_EQ(formulas.find("window pool"), std::string::npos) << formulas;
}

TEST(PlanPools, AForksLayoutIsWarnedOf) {
  const auto warned = [](const char* format) {
    PlanRequest request = logged_budget("vllm", gib(40), 4096);
    request.cache = find_kv_format(format);
    const MemoryPlan plan = plan_memory(test::deepseek_v32(), request);
    return std::ranges::any_of(plan.warnings, [](const std::string& warning) {
      return warning.find("a fork of vLLM") != std::string::npos;
    });
  };
  EXPECT_TRUE(warned("nvfp4_ds_mla"));
  EXPECT_FALSE(warned("fp8_ds_mla"));
}

TEST(PlanPools, ANullBlockIsNeverUsable) {
  // Exactly two sequences' blocks: the reserved one leaves room for one.
  const std::int64_t sequence = 70272 * 4096;
  EXPECT_EQ(plan_memory(test::deepseek_v3(), logged_budget("vllm", 2 * sequence, 4096)).sequences, 1);
  EXPECT_EQ(
      plan_memory(test::deepseek_v3(), logged_budget("vllm", 2 * sequence + 70272 * 64, 4096)).sequences, 2);
  EXPECT_EQ(plan_memory(test::deepseek_v3(), logged_budget("none", 2 * sequence, 4096)).sequences, 2);
}

TEST(PlanPools, MoreMemoryNeverHoldsLess) {
  for (const char* engine :
       {"none", "vllm", "vllm@0.6", "vllm@0.11", "sglang", "tensorrt-llm", "llama.cpp"}) {
    for (const ModelConfig& model : {test::deepseek_v3(), test::gemma_3_27b(), test::kimi_linear(),
                                     test::llama_31_8b(), test::deepseek_v32()}) {
      std::int64_t tokens = 0;
      std::int64_t sequences = 0;
      std::int64_t longest = 0;
      for (double memory = 0.25; memory < 64; memory *= 1.7) {
        const MemoryPlan plan = plan_memory(model, logged_budget(engine, gib(memory), 8192));
        EXPECT_GE(plan.tokens_logged, tokens) << engine << ' ' << model.name << ' ' << memory;
        EXPECT_GE(plan.sequences, sequences) << engine << ' ' << model.name << ' ' << memory;
        EXPECT_GE(plan.longest_context, longest) << engine << ' ' << model.name << ' ' << memory;
        tokens = plan.tokens_logged;
        sequences = plan.sequences;
        longest = plan.longest_context;
      }
    }
  }
}

TEST(PlanPools, LongerSequencesNeverFitMoreOften) {
  for (const char* engine : {"none", "vllm", "sglang", "tensorrt-llm", "llama.cpp"}) {
    for (const ModelConfig& model : {test::deepseek_v3(), test::gemma_3_27b(), test::kimi_linear()}) {
      std::int64_t before = std::numeric_limits<std::int64_t>::max();
      for (std::int64_t context = 1; context < 200000; context = context * 3 + 1) {
        const MemoryPlan plan = plan_memory(model, logged_budget(engine, gib(30), context));
        EXPECT_LE(plan.sequences, before) << engine << ' ' << model.name << ' ' << context;
        EXPECT_LE(plan.sequences * plan.bytes_per_sequence, gib(30) + plan.bytes_per_sequence) << engine;
        before = plan.sequences;
      }
    }
  }
}

TEST(PlanPools, TensorrtWindowsGetTheirShareByLength) {
  // gpt-oss-20b: 12 full and 12 window layers, 24,576 B a token each. 10 GiB / (24,576 x (1 + 128 / 131,072)) are 436,480
  // tokens of the full layers and, x 128 / 131,072, 426 of the windows.
  const ModelConfig oss = load_model("gpt-oss-20b");
  const MemoryPlan plan = plan_memory(oss, logged_budget("tensorrt-llm", gib(10), 131072));
  ASSERT_EQ(plan.stages[0].pools.size(), 2u);
  for (const CachePool& pool : plan.stages[0].pools)
    EXPECT_EQ(pool.blocks, pool.groups[0].window > 0 ? 14 : 13640) << pool.name;
  EXPECT_EQ(plan.tokens_logged, 436480);
  EXPECT_EQ(plan.sequences, 3);  // 14 blocks hold windows of 4 for three, 13,640 hold 4,096 for three
  const auto said = [](const MemoryPlan& one) {
    return std::ranges::any_of(one.warnings, [](const std::string& warning) {
      return warning.find("splits the cache where max_attention_window") != std::string::npos;
    });
  };
  EXPECT_TRUE(said(plan));
  // Before, and without that setting: 24 layers at full length, ceil(10 GiB / (49,152 x 32)).
  const MemoryPlan old = plan_memory(oss, logged_budget("tensorrt-llm@0.21", gib(10), 131072));
  ASSERT_EQ(old.stages[0].pools.size(), 1u);
  EXPECT_EQ(old.blocks, 6827);
  EXPECT_FALSE(said(old));
}

TEST(PlanPools, VllmBeforeItHadMla) {
  // 27 layers x 16 heads x (256 + 256) x 2 B; 35.42 GiB / (16 x that) = 5373 blocks, of which 512 a sequence of 8,192.
  const MemoryPlan old = plan_memory(test::deepseek_v2_lite(), logged_budget("vllm@0.6", gib(35.42), 8192));
  EXPECT_EQ(old.cache_bytes_per_token, 442368);
  EXPECT_EQ(old.blocks, 5373);
  EXPECT_NEAR(old.concurrency_logged, 10.49, 0.005);
  EXPECT_TRUE(std::ranges::any_of(old.warnings, [](const std::string& warning) {
    return warning.find("no MLA before 0.7.1") != std::string::npos;
  }));
  // From 0.7.1 on the latent: 27 x 576 x 2 B. DeepSeek-V3's heads of 128 + 64 and 128 are padded to 256 too.
  for (const char* engine : {"vllm@0.7.1", "vllm@0.7.2", "vllm@2025-02", "vllm"})
    EXPECT_EQ(
        plan_memory(test::deepseek_v2_lite(), logged_budget(engine, gib(10), 8192)).cache_bytes_per_token,
        31104)
        << engine;
  EXPECT_EQ(
      cache_cost(test::deepseek_v3(), find_kv_format("bf16"), find_engine("vllm@0.6"), 8).bytes_per_token,
      61.0 * 16 * 2 * 256 * 2);
  // Replicas and expert ranks came with 0.8.
  for (const char* engine : {"vllm@0.6", "vllm@0.7.1"}) {
    PlanRequest request = logged_budget(engine, gib(10), 8192);
    request.layout = {.dp = 2};
    test::refused([&] { return plan_memory(test::deepseek_v3(), request); },
                  {"vllm 0.", "no data parallelism"});
    request.layout = {.tp = 2, .ep = 2};
    test::refused([&] { return plan_memory(test::deepseek_v3(), request); },
                  {"vllm 0.", "no expert parallelism"});
  }
  PlanRequest request = logged_budget("llama.cpp", gib(10), 8192);
  request.layout = {.dp = 2};
  test::refused([&] { return plan_memory(test::deepseek_v3(), request); },
                {"llama.cpp has no data parallelism"});
}

TEST(PlanPools, BlocksThatVllmTakes) {
  const auto blocks = [](int block) {
    PlanRequest request = logged_budget("vllm", gib(10), 4096);
    request.block = block;
    return plan_memory(test::deepseek_v3(), request);
  };
  // 70,272 B a token: 10 GiB are 152,797 blocks of 1, one of them never usable.
  EXPECT_EQ(blocks(1).blocks, gib(10) / 70272);
  EXPECT_EQ(blocks(1).sequences, (gib(10) / 70272 - 1) / 4096);
  const auto says = [](const MemoryPlan& plan, const char* part) {
    return std::ranges::any_of(
        plan.warnings, [&](const std::string& warning) { return warning.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(says(blocks(1), "everywhere but in AITER's MLA kernels on AMD"));
  EXPECT_TRUE(says(blocks(8), "want multiples of 16, and it ends"));
  EXPECT_FALSE(says(blocks(64), "want multiples of 16"));
  for (const int block : {2, 12, 24, 512})
    test::refused([&] { return blocks(block); }, {"no block size", "1, 8, 16, 32, 64, 128, 256"});
  PlanRequest amd = logged_budget("vllm", gib(10), 4096);
  amd.block = 1;
  amd.gpu = {.vendor = "amd", .architecture = "cdna3", .fp8 = true};
  EXPECT_FALSE(says(plan_memory(test::deepseek_v3(), amd), "multiples of 16"));
}

TEST(PlanPools, TwoPrefillChunksInFlight) {
  // gpt-oss-120b: 18 full and 18 window layers of 2,048 B a token. A window group of 128 holds ceil((127 + n x 8,192) / 16) + 1
  // blocks, the full one 32,768 / 16; a block is 18 x 16 x 2,048 B.
  PlanRequest request = logged_budget("vllm", gib(60), 32768);
  const ModelConfig oss = load_model("gpt-oss-120b");
  EXPECT_EQ(plan_memory(oss, request).bytes_per_sequence, (2048LL + 521) * 18 * 16 * 2048);
  request.prefill_chunks = 2;
  EXPECT_EQ(plan_memory(oss, request).bytes_per_sequence, (2048LL + 1033) * 18 * 16 * 2048);
}

TEST(PlanPools, WhatAGpuHasKernelsFor) {
  const auto cautions = [](const char* gpu, const char* format, const char* weights,
                           const ModelConfig& model) {
    const Device device = load_device(gpu);
    PlanRequest request = logged_budget("vllm", gib(10), 4096);
    request.gpu_name = device.name;
    request.gpu = {.vendor = device.vendor,
                   .architecture = device.architecture,
                   .fp8 = device.dense_flops.contains("e4m3"),
                   .fp4 = device.dense_flops.contains("e2m1")};
    request.cache = find_kv_format(format);
    request.weights = uniform_scheme(find_weight_format(weights));
    std::string all;
    for (const std::string& one : plan_memory(model, request).warnings) {
      if (one.find(std::string(" on ") + gpu + ":") != std::string::npos) all += one + '\n';
    }
    return all;
  };
  const ModelConfig llama = test::llama_31_8b();
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  };
  for (const char* gpu : {"h200", "a100-80gb", "mi300x", "mi355x", "l40s"})
    has(cautions(gpu, "nvfp4", "bf16", llama), "only NVIDIA's Blackwell reads it");
  for (const char* gpu : {"b200", "rtx-pro-6000"})
    EXPECT_EQ(cautions(gpu, "nvfp4", "nvfp4", llama), "") << gpu;
  has(cautions("a100-80gb", "fp8", "bf16", llama),
      "ampere does not multiply fp8, so K and V are stored as e5m2");
  has(cautions("a100-80gb", "fp8", "bf16", test::deepseek_v3()),
      "no MLA kernel converts it as it is read, so vllm would not start");
  for (const char* gpu : {"h200", "mi300x", "l40s", "b200"})
    EXPECT_EQ(cautions(gpu, "fp8", "fp8", llama), "") << gpu;
  has(cautions("mi300x", "fp8_ds_mla", "bf16", test::deepseek_v32()), "sparse kernels for Hopper");
  EXPECT_EQ(cautions("h200", "fp8_ds_mla", "fp8", test::deepseek_v32()), "");
  has(cautions("h200", "bf16", "nvfp4", llama),
      "hopper does not multiply nvfp4, so kernels unpack the weights");
  has(cautions("mi300x", "bf16", "nvfp4", llama), "no kernel for them is known there");
  has(cautions("a100-80gb", "bf16", "fp8", llama), "ampere does not multiply fp8, so kernels unpack");
  EXPECT_EQ(cautions("a100-80gb", "bf16", "bf16", llama), "");
}

}  // namespace
}  // namespace mla::capacity
