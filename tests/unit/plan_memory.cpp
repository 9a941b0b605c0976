// SPDX-License-Identifier: Apache-2.0
// The whole plan: what fits and why not more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "mla/capacity.hpp"
#include "plan/examples.hpp"
#include "plan_models.hpp"

namespace mla::capacity {
namespace {

using test::gib;
using test::kGiB;
using test::kH200;
using test::on_h200;
using test::refused;

std::int64_t value_of(const MemoryPlan& plan, const std::string& key) {
  for (const Line& line : plan.lines) {
    if (line.key == key) return std::get<std::int64_t>(line.value);
  }
  ADD_FAILURE() << "no line " << key;
  return -1;
}

TEST(PlanMemory, DeepSeekV3OnEightH200) {
  // By hand, DP8+EP8: 0.9 x 139.81 - 93.935 weights - 2 - 1 - 2.06 = 26.84 GiB; 128k take 8.578 GiB: 3 a GPU.
  const MemoryPlan dp = plan_memory(test::deepseek_v3(), on_h200({.dp = 8, .ep = 8}, 131072));
  EXPECT_EQ(dp.sequences, 24);
  EXPECT_EQ(dp.sequences_per_replica, 3);
  EXPECT_EQ(dp.binding, Binding::kCache);
  EXPECT_TRUE(dp.fits);
  // Tensor parallelism keeps the whole latent on every rank: 41.5 GiB hold 4.
  const MemoryPlan tp = plan_memory(test::deepseek_v3(), on_h200({.tp = 8}, 131072));
  EXPECT_EQ(tp.sequences, 4);
  EXPECT_NE(tp.warnings.at(0).find("tp 8 replicates the latent cache"), std::string::npos);
  // The budget's lines add up.
  EXPECT_EQ(value_of(dp, "cache.budget"), value_of(dp, "memory.budget") - value_of(dp, "weights.total") -
                                              value_of(dp, "runtime.activations") -
                                              value_of(dp, "runtime.graphs") - value_of(dp, "runtime.other"));
  EXPECT_EQ(value_of(dp, "memory.budget"), static_cast<std::int64_t>(std::floor(0.9 * kH200)));
}

TEST(PlanMemory, SequencesAreWholeOnEachReplica) {
  PlanRequest request = on_h200({.dp = 8, .ep = 8}, 131072);
  request.concurrency = 25;
  const MemoryPlan plan = plan_memory(test::deepseek_v3(), request);
  EXPECT_GT(plan.concurrency_logged * 8, 25);  // a pooled estimate would say that 25 fit
  EXPECT_FALSE(plan.fits);
  request.concurrency = 24;
  EXPECT_TRUE(plan_memory(test::deepseek_v3(), request).fits);
  EXPECT_EQ(plan_memory(test::deepseek_v3(), request).binding, Binding::kNothing);
}

TEST(PlanMemory, ReplicasAddUpAndStagesTakeTheSmallest) {
  for (const int dp : {1, 2, 4}) {
    const MemoryPlan plan = plan_memory(test::deepseek_v2_lite(), on_h200({.dp = dp}, 32768));
    EXPECT_EQ(plan.sequences, dp * plan.sequences_per_replica);
  }
  const MemoryPlan stages = plan_memory(test::llama_31_70b(), on_h200({.pp = 3}, 32768));
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  for (const StagePlan& stage : stages.stages) smallest = std::min(smallest, stage.sequences);
  EXPECT_EQ(stages.sequences, smallest);
}

TEST(PlanMemory, WhatStopsMore) {
  PlanRequest one = on_h200({}, 131072);
  const MemoryPlan weights = plan_memory(test::deepseek_v3(), one);
  EXPECT_EQ(weights.binding, Binding::kWeights);
  EXPECT_LT(weights.stages[0].cache_budget, 0);
  EXPECT_EQ(weights.sequences, 0);
  PlanRequest sequence = test::logged_budget("vllm", gib(1), 131072);
  const MemoryPlan too_long = plan_memory(test::deepseek_v3(), sequence);
  EXPECT_EQ(too_long.binding, Binding::kSequence);
  EXPECT_FALSE(too_long.fits);
  EXPECT_GT(too_long.longest_context, 14000);  // 1 GiB / 70,272 B = 15,279 tokens
  EXPECT_LE(too_long.longest_context, 15279);
}

TEST(PlanMemory, BudgetsByEngine) {
  PlanRequest request = on_h200({.tp = 8}, 32768);
  request.weight_bytes = gib(80);
  request.runtime = {.activations = gib(2), .graphs = gib(1), .other = gib(1)};
  request.gpu_memory_bytes = gib(140);
  const ModelConfig v3 = test::deepseek_v3();
  EXPECT_EQ(plan_memory(v3, request).stages[0].cache_budget, gib(126) - gib(84));
  request.engine = find_engine("tensorrt-llm");  // 0.9 of what is free
  EXPECT_NEAR(static_cast<double>(plan_memory(v3, request).stages[0].cache_budget), 0.9 * 56 * kGiB, 2);
  request.engine = find_engine("sglang");  // activations and graphs live in the other 12 %
  EXPECT_NEAR(static_cast<double>(plan_memory(v3, request).stages[0].cache_budget), (0.88 * 140 - 81) * kGiB,
              2);
  request.utilization = 0.5;
  EXPECT_EQ(plan_memory(v3, request).stages[0].cache_budget, gib(70) - gib(81));
}

TEST(PlanMemory, EveryLineHasAFormulaAndASource) {
  for (const char* engine : {"vllm", "sglang", "tensorrt-llm", "llama.cpp", "none"}) {
    PlanRequest request = on_h200({.tp = 2, .pp = 2}, 8192);
    request.engine = find_engine(engine);
    for (const ModelConfig& model : {test::deepseek_v2_lite(), test::gemma_3_27b(), test::kimi_linear()}) {
      const MemoryPlan plan = plan_memory(model, request);
      for (const Line& line : plan.lines) {
        EXPECT_FALSE(line.key.empty());
        EXPECT_FALSE(line.title.empty()) << line.key;
        EXPECT_FALSE(line.formula.empty()) << line.key;
        EXPECT_FALSE(line.source.empty()) << line.key;
      }
    }
  }
}

TEST(PlanMemory, BadRequestsAreRefusedByName) {
  const ModelConfig v3 = test::deepseek_v3();
  const auto with = [&](auto change) {
    PlanRequest request = on_h200({.tp = 8}, 4096);
    change(request);
    return [&v3, request] { return plan_memory(v3, request); };
  };
  refused(with([](PlanRequest& r) { r.utilization = 0; }), {"utilization 0"});
  refused(with([](PlanRequest& r) { r.utilization = 1.01; }), {"utilization 1.01"});
  refused(with([](PlanRequest& r) { r.utilization = std::nan(""); }), {"utilization nan"});
  refused(with([](PlanRequest& r) { r.gpu_memory_bytes = 0; }), {"memory of a GPU"});
  refused(with([](PlanRequest& r) { r.context = -1; }), {"context -1"});
  refused(with([](PlanRequest& r) { r.context = std::int64_t{1} << 60; }), {"context"});
  refused(with([](PlanRequest& r) { r.concurrency = -3; }), {"concurrency -3"});
  refused(with([](PlanRequest& r) { r.max_batched_tokens = 0; }), {"batched tokens 0"});
  refused(with([](PlanRequest& r) { r.weight_bytes = -1; }), {"-1"});
  refused(with([](PlanRequest& r) { r.cache_bytes = {1, 2}; }), {"2 cache budgets", "1 pipeline"});
  refused(with([](PlanRequest& r) { r.layout.tp = 0; }), {"tp is 0"});
  refused(with([](PlanRequest& r) { r.layout.tp = 7; }), {"tp 7", "128 attention heads"});
  refused(with([](PlanRequest& r) { r.layout.dcp = 3; }), {"dcp 3", "tp 8"});
  refused(with([](PlanRequest& r) { r.layout.ep = 3; }), {"ep 3", "8 ranks"});
  refused(with([](PlanRequest& r) { r.layout = {.dp = 512, .ep = 512}; }), {"ep 512", "256 routed experts"});
  refused(with([](PlanRequest& r) { r.layout = {.pp = 62}; }), {"pp 62", "61 layers"});
  refused(with([](PlanRequest& r) { r.layout = {.pp = 2, .stage_layers = {30, 30}}; }), {"60 layers", "61"});
  refused(with([](PlanRequest& r) { r.layout = {.pp = 2, .stage_layers = {61}}; }),
          {"1 stage sizes", "pp 2"});
  refused(with([](PlanRequest& r) { r.layout = {.pp = 2, .stage_layers = {61, 0}}; }), {"0 layers"});
  refused(with([](PlanRequest& r) { r.layout = {.tp = 8, .dp = 60000}; }), {"GPUs"});
  PlanRequest llama = on_h200({.tp = 3}, 4096);
  refused([&] { return plan_memory(test::llama_31_8b(), llama); }, {"tp 3"});
  llama.layout = {.tp = 8, .dcp = 2};
  refused([&] { return plan_memory(test::llama_31_8b(), llama); }, {"dcp 2", "at least 16"});
  llama.layout = {.tp = 2, .ep = 2};
  refused([&] { return plan_memory(test::llama_31_8b(), llama); }, {"ep 2", "no routed experts"});
  PlanRequest gemma = on_h200({.tp = 32, .dcp = 2}, 4096);
  refused([&] { return plan_memory(test::gemma_3_27b(), gemma); }, {"dcp 2", "window of 1024"});
}

TEST(PlanMemory, LayoutsAsText) {
  EXPECT_EQ(to_text(Layout{}), "TP1");
  EXPECT_EQ(to_text(Layout{.tp = 8}), "TP8");
  EXPECT_EQ(to_text(Layout{.dp = 8, .ep = 8}), "DP8+EP8");
  EXPECT_EQ(to_text(Layout{.tp = 4, .pp = 2}), "PP2xTP4");
  EXPECT_EQ(to_text(Layout{.tp = 8, .dcp = 8}), "TP8+DCP8");
  EXPECT_EQ(to_text(Layout{.tp = 4, .dp = 2, .ep = 8}), "DP2xTP4+EP8");
}

TEST(PlanMemory, WarningsNameTheRule) {
  const auto warned = [](const ModelConfig& model, const PlanRequest& request, const char* words) {
    for (const std::string& warning : plan_memory(model, request).warnings) {
      if (warning.find(words) != std::string::npos) return true;
    }
    return false;
  };
  const ModelConfig v3 = test::deepseek_v3();
  EXPECT_TRUE(warned(v3, on_h200({.tp = 32}, 4096), "ep keeps experts whole"));
  EXPECT_FALSE(warned(v3, on_h200({.tp = 16}, 4096), "ep keeps experts whole"));
  EXPECT_TRUE(warned(v3, on_h200({.dp = 24, .ep = 24}, 4096), "does not divide the 256 routed experts"));
  EXPECT_TRUE(warned(v3, on_h200({.dp = 8, .ep = 8}, 1 << 20), "beyond the 163,840 positions"));
  EXPECT_TRUE(warned(v3, on_h200({.dp = 8, .ep = 8}, 4096), "--mtp"));
  EXPECT_FALSE(warned(v3, on_h200({.dp = 8, .ep = 8}, 4096), "replicates"));
  EXPECT_FALSE(warned(v3, on_h200({.tp = 8, .dcp = 8}, 4096), "replicates"));
  EXPECT_TRUE(warned(test::llama_31_70b(), on_h200({.tp = 16}, 4096), "kept on 2 ranks"));
  EXPECT_TRUE(warned(test::kimi_linear(), on_h200({.tp = 2}, 4096), "raised to 960"));
  PlanRequest block = on_h200({.dp = 8, .ep = 8}, 4096);
  block.block = 16;
  EXPECT_TRUE(warned(v3, block, "FlashMLA"));
}

TEST(PlanMemory, FormatsOfAnotherEngineWarn) {
  const auto warned = [](const char* engine, const char* format, const char* word) {
    PlanRequest request = test::logged_budget(engine, test::gib(40), 4096);
    request.cache = find_kv_format(format);
    const MemoryPlan plan = plan_memory(test::llama_31_8b(), request);
    return std::any_of(plan.warnings.begin(), plan.warnings.end(), [&](const std::string& one) {
      return one.find("has no cache format") != std::string::npos && one.find(word) != std::string::npos;
    });
  };
  EXPECT_TRUE(warned("vllm", "q8_0", "llama.cpp's"));
  EXPECT_TRUE(warned("sglang", "iq4_nl", "llama.cpp's"));
  EXPECT_TRUE(warned("llama.cpp", "fp8", "q8_0"));
  EXPECT_FALSE(warned("llama.cpp", "q4_1", ""));
  EXPECT_FALSE(warned("ik_llama.cpp", "f16", ""));
  EXPECT_FALSE(warned("vllm", "fp8", ""));
  EXPECT_FALSE(warned("none", "q8_0", ""));
  // Of two formats the foreign one is named.
  PlanRequest mixed = test::logged_budget("vllm", test::gib(40), 4096);
  mixed.cache = mixed_kv_format(find_kv_format("bf16"), find_kv_format("q8_0"));
  const std::vector<std::string> warnings = plan_memory(test::llama_31_8b(), mixed).warnings;
  EXPECT_EQ(std::ranges::count(warnings, "vllm has no cache format q8_0: it is llama.cpp's"), 1);
}

TEST(PlanMemory, WhatRunsAtOnceIsNotWhatFits) {
  // 20 GiB are 4,774 usable blocks of 64 tokens: 298 sequences of 1,024 on each of two replicas.
  PlanRequest request = test::logged_budget("vllm", gib(20), 1024);
  request.layout = {.dp = 2, .ep = 2};
  const auto plan = [&](std::int64_t wanted, std::int64_t most) {
    request.concurrency = wanted;
    request.max_sequences = most;
    return plan_memory(test::deepseek_v3(), request);
  };
  EXPECT_EQ(plan(0, 256).sequences, 596);
  EXPECT_EQ(plan(0, 256).at_once, 512);
  EXPECT_TRUE(plan(512, 256).fits);
  EXPECT_FALSE(plan(513, 256).fits);
  EXPECT_EQ(plan(513, 256).binding, Binding::kBatch);
  EXPECT_EQ(plan(597, 256).binding, Binding::kCache);
  EXPECT_TRUE(plan(596, 298).fits);
  request.engine = find_engine("llama.cpp");
  request.layout = {};
  EXPECT_EQ(plan(1, 8).at_once, plan(1, 8).sequences) << "cells have no such limit";
}

TEST(PlanExamples, DocumentsLinesAndCorrectedLines) {
  const std::vector<Example> examples = document_examples(test::deepseek_v3(), test::kimi_k2());
  const auto row = [&](const std::string& subject) -> const Example& {
    for (const Example& example : examples) {
      if (example.subject == subject) return example;
    }
    ADD_FAILURE() << "no example " << subject;
    return examples.front();
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << " lacks " << part;
  };
  EXPECT_EQ(row("KV heads of DeepSeek-V3").corrected, "128");
  has(row("standard K and V, one token, one layer").document, "32,768 B");
  has(row("standard K and V, one token, one layer").corrected, "81,920 B with K 192");
  has(row("standard K and V, one token, one layer").corrected, "65,536 B with K 128");
  has(row("MLA, one token, one layer").document, "1,024 B");
  EXPECT_EQ(row("MLA, one token, one layer").corrected, "1,152 B");
  EXPECT_EQ(row("compression").document, "32.0x");
  has(row("compression").corrected, "56.9x");
  has(row("compression").corrected, "71.1x");
  has(row("compression").why, "28.4x and 35.6x");
  has(row("4K context x 256 users, MLA").document, "1 GiB");
  has(row("4K context x 256 users, MLA").corrected, "1.125 GiB a layer, 68.62 GiB the model");
  has(row("4K context x 256 users, standard").document, "32 GiB");
  has(row("4K context x 256 users, standard").corrected, "3,904 GiB the model, 4,880 GiB");
  has(row("compression of DeepSeek-V3").document, "56.9x");
  has(row("pool (2, 1024, 16, 64, 128)").document, "536,870,912 B = 512 MiB");
  has(row("pool (2, 1024, 16, 64, 128)").corrected, "1024 MiB with 128 heads");
  has(row("latent pool + rope pool").document, "16 MiB + 2 MiB = 18 MiB, 28.4x");
  has(row("latent pool + rope pool").corrected, "18 MiB, 56.9x");
  has(row("down-projection C = W_DKV concat(K, V)").document, "16,777,216");
  has(row("down-projection C = W_DKV concat(K, V)").corrected, "4,128,768");
  has(row("100 tokens, window 32, sink 4").document, "36 of 100 tokens kept");
  has(row("100 tokens, window 32, sink 4").corrected, "64 % of the reads skipped; memory saved 0 %");
  has(row("length 10000: blocks read").corrected, "257, 368 of 625 skipped (58.9 %), 5,900 tokens");
  has(row("length 10000: blocks read").corrected_formula, "369..624");
  EXPECT_EQ(row("length 5000: blocks read").corrected, "258");
  has(row("length 5000: blocks read").document, "= 257");
  has(row("length 5000: blocks read").corrected_formula, "56..312");
  has(row("lengths 10000, 5000, 1000: indptr").document, "[0, 257, 514, 577]");
  has(row("lengths 10000, 5000, 1000: indptr").corrected, "[0, 257, 515, 578], 578 blocks");
  EXPECT_EQ(row("last_page_len of 10000").document, "0");
  EXPECT_EQ(row("last_page_len of 10000").corrected, "16");
  for (const Example& example : examples) {
    EXPECT_FALSE(example.printed.empty()) << example.subject;
    EXPECT_FALSE(example.corrected.empty()) << example.subject;
    EXPECT_FALSE(example.why.empty()) << example.subject;
  }
  EXPECT_GE(examples.size(), 24u);
  refused([&] { return document_examples(test::llama_31_8b(), test::kimi_k2()); }, {"two MLA models"});
}

}  // namespace
}  // namespace mla::capacity
