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
#include "plan/search.hpp"
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

/// Bytes of kv_b's copies among the weights of the first stage; nothing without such a line.
std::optional<std::int64_t> absorbed_of(const MemoryPlan& plan) {
  for (const Line& line : plan.stages.at(0).weights.lines) {
    if (line.key == "weights.absorbed") return std::get<std::int64_t>(line.value);
  }
  return std::nullopt;
}

TEST(PlanMemory, DeepSeekV3OnEightH200) {
  // By hand, DP8+EP8: 93.935 GiB stored, and 61 x 128 x (128 + 128) x 512 x 2 B = 1.906 GiB of kv_b in 16 bits:
  // 0.9 x 139.81 - 95.841 - 2 - 1 - 2.06 = 24.93 GiB; 128k take 8.578 GiB: 2 a GPU.
  const MemoryPlan dp = plan_memory(test::deepseek_v3(), on_h200({.dp = 8, .ep = 8}, 131072));
  EXPECT_EQ(dp.sequences, 16);
  EXPECT_EQ(dp.sequences_per_replica, 2);
  EXPECT_EQ(absorbed_of(dp), 61LL * 128 * 256 * 512 * 2);
  EXPECT_EQ(dp.binding, Binding::kCache);
  EXPECT_TRUE(dp.fits);
  // Tensor parallelism keeps the whole latent on every rank: 41.2 GiB hold 4.
  const MemoryPlan tp = plan_memory(test::deepseek_v3(), on_h200({.tp = 8}, 131072));
  EXPECT_EQ(tp.sequences, 4);
  EXPECT_NE(tp.warnings.at(0).find("tp 8 replicates the latent cache"), std::string::npos);
  // The budget's lines add up.
  EXPECT_EQ(value_of(dp, "cache.budget"), value_of(dp, "memory.budget") - value_of(dp, "weights.total") -
                                              value_of(dp, "runtime.activations") -
                                              value_of(dp, "runtime.graphs") - value_of(dp, "runtime.other"));
  EXPECT_EQ(value_of(dp, "memory.budget"), static_cast<std::int64_t>(std::floor(0.9 * kH200)));
}

// Who makes such copies: vLLM from 0.7.1 on, of a kv_b that is stored in fewer bits.
TEST(PlanMemory, KvBInSixteenBitsIsAWeight) {
  PlanRequest request = on_h200({.tp = 8}, 131072);
  const auto copies = [&](const PlanRequest& asked) {
    return absorbed_of(plan_memory(test::deepseek_v3(), asked));
  };
  EXPECT_EQ(copies(request), 61LL * 16 * 256 * 512 * 2);
  PlanRequest other = request;
  other.engine = find_engine("sglang");
  EXPECT_EQ(copies(other), std::nullopt);
  other = request;
  other.weights = uniform_scheme(find_weight_format("bf16"));
  EXPECT_EQ(copies(other), std::nullopt);
  other = request;
  other.weight_bytes = gib(80);
  EXPECT_EQ(copies(other), std::nullopt);
}

TEST(PlanMemory, SequencesAreWholeOnEachReplica) {
  PlanRequest request = on_h200({.dp = 8, .ep = 8}, 131072);
  request.concurrency = 17;
  const MemoryPlan plan = plan_memory(test::deepseek_v3(), request);
  EXPECT_GT(plan.concurrency_logged * 8, 17);  // a pooled estimate would say that 17 fit
  EXPECT_FALSE(plan.fits);
  request.concurrency = 16;
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

TEST(PlanMemory, FormatsThatAnEngineDoesNotHaveAreRefused) {
  const auto with = [](const char* engine, const char* format, const ModelConfig& model) {
    PlanRequest request = test::logged_budget(engine, test::gib(40), 4096);
    request.cache = find_kv_format(format);
    return [request, model] { return plan_memory(model, request); };
  };
  const ModelConfig llama = test::llama_31_8b();
  refused(with("vllm", "q8_0", llama), {"vllm has no cache format q8_0"});
  refused(with("vllm", "int8", llama), {"vllm has no cache format int8"});
  refused(with("sglang", "iq4_nl", llama), {"sglang has no cache format iq4_nl"});
  refused(with("sglang", "fp8_per_token_head", llama), {"sglang has no"});
  refused(with("tensorrt-llm", "fp8_ds_mla", test::deepseek_v32()), {"tensorrt-llm has no"});
  refused(with("llama.cpp", "fp8", llama), {"llama.cpp has no cache format fp8"});
  refused(with("llama.cpp", "q6_0", llama), {"llama.cpp has no cache format q6_0"});  // ik_llama.cpp's
  for (const auto& [engine, format] : {std::pair{"llama.cpp", "q4_1"},
                                       {"ik_llama.cpp", "f16"},
                                       {"ik_llama.cpp", "q6_0"},
                                       {"vllm", "fp8"},
                                       {"vllm", "nvfp4"},
                                       {"sglang", "nvfp4"},
                                       {"tensorrt-llm", "int8"},
                                       {"none", "q8_0"},
                                       {"none", "int8"}}) {
    EXPECT_GT(with(engine, format, llama)().sequences, 0) << engine << ' ' << format;
  }
  // Of two formats the foreign one is named; only the ggml family has two at all.
  PlanRequest mixed = test::logged_budget("vllm", test::gib(40), 4096);
  mixed.cache = mixed_kv_format(find_kv_format("bf16"), find_kv_format("fp8"));
  refused([&] { return plan_memory(llama, mixed); }, {"vllm stores K and V in one format", "bf16 and fp8"});
  mixed.engine = find_engine("llama.cpp");
  refused([&] { return plan_memory(llama, mixed); }, {"llama.cpp has no cache format fp8"});
  mixed.cache = mixed_kv_format(find_kv_format("q8_0"), find_kv_format("f16"));
  EXPECT_GT(plan_memory(llama, mixed).sequences, 0);
}

TEST(PlanMemory, TiledRowsAreForSparseModels) {
  // FlashMLA's sparse kernels read the 656 and 432 B rows; dense MLA backends have none for them.
  for (const char* engine : {"vllm", "sglang"}) {
    PlanRequest request = test::logged_budget(engine, test::gib(40), 4096);
    request.cache = find_kv_format("fp8_ds_mla");
    refused([&] { return plan_memory(test::deepseek_v3(), request); },
            {"fp8_ds_mla", "deepseek-v3 has none"});
    EXPECT_EQ(plan_memory(test::deepseek_v32(), request).cache_bytes_per_token, 61 * (656 + 132));
  }
  PlanRequest request = test::logged_budget("vllm", test::gib(40), 4096);
  request.cache = find_kv_format("nvfp4_ds_mla");
  refused([&] { return plan_memory(test::deepseek_v3(), request); }, {"nvfp4_ds_mla"});
  request.engine = find_engine("none");
  EXPECT_EQ(plan_memory(test::deepseek_v3(), request).cache_bytes_per_token, 61 * 432);
}

TEST(PlanMemory, AnExcessIsTheSumOfItsParts) {
  PlanRequest request = on_h200({.tp = 8}, 32768);
  request.weight_bytes = gib(150);
  request.runtime = {.activations = gib(2), .graphs = gib(1), .other = gib(1)};
  request.gpu_memory_bytes = gib(140);
  request.utilization = 0.5;
  struct {
    const char* engine;
    std::int64_t limit, charged;
  } const cases[] = {{"vllm", gib(70), gib(4)},
                     {"sglang", gib(70), gib(1)},         // activations and graphs live in the other half
                     {"tensorrt-llm", gib(140), gib(4)},  // no share of what is not free
                     {"llama.cpp", gib(70), gib(4)}};
  for (const auto& one : cases) {
    request.engine = find_engine(one.engine);
    const StagePlan stage = plan_memory(test::deepseek_v3(), request).stages[0];
    EXPECT_EQ(stage.charged_bytes, one.charged) << one.engine;
    EXPECT_EQ(-stage.cache_budget, gib(150) + one.charged - one.limit) << one.engine;
  }
}

TEST(PlanMemory, SglangMustFindItsGraphsOutsideTheShare) {
  PlanRequest request = on_h200({.tp = 8}, 32768);
  request.engine = find_engine("sglang");
  request.weight_bytes = gib(80);
  request.gpu_memory_bytes = gib(100);
  request.utilization = 0.95;
  request.runtime = {.activations = gib(4), .graphs = gib(2), .other = gib(1)};
  const auto warned = [&] {
    const std::vector<std::string> warnings = plan_memory(test::deepseek_v3(), request).warnings;
    return std::ranges::any_of(warnings, [](const std::string& one) {
      return one.find("take 6.00 GiB, more than the 5.00 GiB") != std::string::npos;
    });
  };
  EXPECT_TRUE(warned());
  request.utilization = 0.93;  // 7 GiB outside
  EXPECT_FALSE(warned());
}

TEST(PlanMemory, LlamaCppNeedsAComputeBuffer) {
  // Logs: 304.00 MiB for Qwen2.5-7B at 65,536 tokens, 258.48 MiB for an 8B with 128,256 words, 495.00 MiB for Qwen3.6-27B
  // at 131,072: 512 tokens of logits and of the hidden width, 4 B each.
  PlanRequest request = on_h200({}, 8192);
  request.engine = find_engine("llama.cpp");
  request.cache = find_kv_format("f16");
  request.weights = uniform_scheme(find_weight_format("q8_0"));
  const ModelConfig llama = test::llama_31_8b();
  MemoryPlan plan = plan_memory(llama, request);
  EXPECT_EQ(value_of(plan, "runtime.activations"), 512 * (128256 + 4096) * 4);  // 258.5 MiB
  EXPECT_EQ(value_of(plan, "runtime.graphs"), 0);
  EXPECT_EQ(value_of(plan, "runtime.other"), (std::int64_t{7} << 30) / 10);
  // The mask of a long context outgrows the logits: 131,072 x 6 B, beside 4 x 4,096 and gate and up of 14,336 in f32.
  request.context = 131072;
  plan = plan_memory(llama, request);
  EXPECT_EQ(value_of(plan, "runtime.activations"), 512 * (131072 * 6 + (4 * 4096 + 2 * 14336) * 4));
  request.micro_batch = 2048;  // -ub
  EXPECT_EQ(value_of(plan_memory(llama, request), "runtime.activations"),
            4 * value_of(plan, "runtime.activations"));
  request.max_batched_tokens = 1 << 20;  // vLLM's
  EXPECT_EQ(value_of(plan_memory(llama, request), "runtime.activations"),
            4 * value_of(plan, "runtime.activations"));
}

TEST(PlanMemory, LlamaCppTokensAreWholeSequencesOfWholeBlocks) {
  // A sequence of 5,000 tokens has 5,120 cells of 31,104 B: 67 of them in 10 GiB.
  PlanRequest request = test::logged_budget("llama.cpp", gib(10), 5000);
  request.cache = find_kv_format("f16");
  MemoryPlan plan = plan_memory(test::deepseek_v2_lite(), request);
  EXPECT_EQ(plan.sequences, 67);
  EXPECT_EQ(plan.tokens_logged, 67 * 5120);
  EXPECT_EQ(plan.blocks, 67 * 20);
  // One sequence: 404 blocks of 256 cells in 3 GiB.
  request = test::logged_budget("llama.cpp", gib(3), 163840);
  request.cache = find_kv_format("f16");
  plan = plan_memory(test::deepseek_v2_lite(), request);
  EXPECT_EQ(plan.longest_context, 404 * 256);
  EXPECT_EQ(plan.tokens_logged, 0);  // not one of 163,840
}

TEST(PlanMemory, WhatIsOfferedFitsWhateverTheContextCosts) {
  // llama.cpp's compute buffer grows with the context, so the longest one must be found with its own.
  PlanRequest request = on_h200({}, 131072);
  request.engine = find_engine("llama.cpp");
  request.cache = find_kv_format("f16");
  request.weights = uniform_scheme(find_weight_format("q8_0"));
  for (const ModelConfig& model : {test::llama_31_8b(), test::deepseek_v2_lite(), test::gemma_3_27b()}) {
    for (const int gibs : {14, 20, 24, 33, 40}) {
      request.gpu_memory_bytes = gib(gibs);
      const MemoryPlan asked = plan_memory(model, request);
      const std::int64_t longest = asked.longest_context;
      EXPECT_EQ(longest, largest_context(model, request)) << model.name << ' ' << gibs;
      if (longest == 0 || longest >= std::max(model.max_position, request.context)) continue;
      PlanRequest one = request;
      one.context = longest;
      EXPECT_EQ(longest % 256, 0) << model.name << ' ' << gibs;
      EXPECT_EQ(plan_memory(model, one).sequences, 1) << model.name << ' ' << gibs;
      one.context = longest + 1;
      EXPECT_EQ(plan_memory(model, one).sequences, 0) << model.name << ' ' << gibs;
    }
  }
}

TEST(PlanMemory, MarlinPadsForVllmAlone) {
  const ModelConfig oss = load_model("gpt-oss-20b");
  const auto warned = [&](const char* engine) {
    PlanRequest request = on_h200({}, 4096);
    request.engine = find_engine(engine);
    request.weights = scheme_of(oss);
    const std::vector<std::string> warnings = plan_memory(oss, request).warnings;
    return std::ranges::any_of(
        warnings, [](const std::string& one) { return one.find("Marlin") != std::string::npos; });
  };
  EXPECT_TRUE(warned("vllm"));
  EXPECT_FALSE(warned("tensorrt-llm"));
  EXPECT_FALSE(warned("sglang"));
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
  EXPECT_EQ(plan(1, 8).sequences, 298);
  EXPECT_EQ(plan(1, 8).at_once, 256) << "cells do not go by --max-seqs, but by what llama.cpp was built for";
  EXPECT_FALSE(plan(257, 8).fits);
  request.context = 2048;
  EXPECT_EQ(plan(1, 8).at_once, plan(1, 8).sequences);
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
