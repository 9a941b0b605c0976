// SPDX-License-Identifier: Apache-2.0
// Weights by rank: published parameter counts, and layouts worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "mla/capacity.hpp"
#include "plan/weight_padding.hpp"
#include "plan/weight_parts.hpp"
#include "plan_models.hpp"

namespace mla::capacity {
namespace {

using test::gib;
using test::kGiB;
using test::refused;

double gib_on_rank(const ModelConfig& model, const WeightScheme& scheme, const Layout& layout, int stage = 0,
                   const char* engine = "vllm", bool mtp = false) {
  return static_cast<double>(weights_on_rank(model, scheme, layout, stage, find_engine(engine), mtp).bytes) /
         kGiB;
}

TEST(PlanWeights, ParameterCountsArePublishedOnes) {
  EXPECT_EQ(parameter_count(test::deepseek_v2_lite()), 15706484224);
  EXPECT_EQ(parameter_count(test::llama_31_8b()), 8030261248);
  EXPECT_EQ(parameter_count(test::deepseek_v3()), 671026404352);
  EXPECT_EQ(parameter_count(test::deepseek_v3(), true) - parameter_count(test::deepseek_v3()), 11610067968);
  EXPECT_NEAR(static_cast<double>(parameter_count(test::deepseek_v32())), 671.878e9, 0.001e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(test::kimi_k2())), 1026.408e9, 0.001e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(test::glm_52())), 743.377e9, 0.001e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(test::deepseek_v4_flash())), 284e9, 1e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(test::kimi_linear())), 49.1e9, 0.2e9);
}

TEST(PlanWeights, DeepSeekV3Fp8InTheLayoutsPeopleUse) {
  const ModelConfig v3 = test::deepseek_v3();
  const WeightScheme fp8 = uniform_scheme(find_weight_format("fp8"));
  const struct {
    Layout layout;
    double gib;
  } cases[] = {
      {{.tp = 8}, 79.312},
      {{.tp = 8, .ep = 8}, 79.312},
      {{.tp = 16}, 40.196},
      {{.tp = 32}, 20.638},
      {{.dp = 8, .ep = 8}, 93.935},
      {{.dp = 16, .ep = 16}, 55.863},
      {{.dp = 32, .ep = 32}, 36.827},
      {{.tp = 4, .dp = 2, .ep = 8}, 81.401},
  };
  for (const auto& c : cases) EXPECT_NEAR(gib_on_rank(v3, fp8, c.layout), c.gib, 0.0005) << to_text(c.layout);
  WeightScheme nvfp4 = fp8;
  nvfp4.experts = find_weight_format("nvfp4");
  EXPECT_NEAR(gib_on_rank(v3, nvfp4, {.tp = 8}), 45.99, 0.005);
  EXPECT_NEAR(gib_on_rank(v3, fp8, {.tp = 8}, 0, "vllm", true) - gib_on_rank(v3, fp8, {.tp = 8}), 1.55,
              0.005);
}

TEST(PlanWeights, LoggedWeightsOfRealRuns) {
  // vllm#4650: DeepSeek-V2-Lite bf16, 29.3010 GiB with an f32 rope table; gates in 4 bytes are the last
  // 0.006.
  EXPECT_NEAR(gib_on_rank(test::deepseek_v2_lite(), {}, {}, 0, "vllm@0.5.0"), 29.2947, 0.0001);
  // vllm#10517: Llama-3.1-8B bf16, 14.9888 GiB with a bf16 rope table.
  EXPECT_NEAR(gib_on_rank(test::llama_31_8b(), {}, {}, 0, "vllm@0.6"), 14.9888, 0.0001);
}

TEST(PlanWeights, StagesTogetherHoldTheModelOnce) {
  const ModelConfig v3 = test::deepseek_v3();
  const WeightScheme fp8 = uniform_scheme(find_weight_format("fp8"));
  const EngineRules engine = find_engine("vllm");
  const std::int64_t rope = v3.max_position * 64 * engine.rope_table_bytes;
  const std::int64_t whole = weights_on_rank(v3, fp8, {}, 0, engine).bytes - rope;
  for (const int pp : {2, 3, 4, 7, 61}) {
    std::int64_t sum = 0;
    for (int stage = 0; stage < pp; ++stage) {
      sum += weights_on_rank(v3, fp8, {.pp = pp}, stage, engine).bytes - rope;
    }
    EXPECT_EQ(sum, whole) << pp;
  }
}

TEST(PlanWeights, LinesSumToTheTotal) {
  for (const ModelConfig& model : {test::deepseek_v32(), test::kimi_linear(), test::gemma_4_31b(),
                                   test::deepseek_v4_flash(), test::glm_52()}) {
    const WeightPlan plan = weights_on_rank(model, uniform_scheme(find_weight_format("int4")), {.tp = 2}, 0,
                                            find_engine("sglang"), true);
    const std::int64_t sum = std::accumulate(
        plan.lines.begin(), plan.lines.end(), std::int64_t{0},
        [](std::int64_t total, const Line& line) { return total + std::get<std::int64_t>(line.value); });
    EXPECT_EQ(plan.bytes, sum) << model.name;
    for (const Line& line : plan.lines) EXPECT_FALSE(line.formula.empty()) << line.key;
  }
}

TEST(PlanWeights, MoreRanksNeverHoldMore) {
  const WeightScheme fp8 = uniform_scheme(find_weight_format("fp8"));
  for (const ModelConfig& model : {test::deepseek_v3(), test::kimi_k2(), test::llama_31_70b()}) {
    double before = 1e9;
    for (int tp = 1; tp <= 64; tp *= 2) {
      const double now = gib_on_rank(model, fp8, {.tp = tp});
      EXPECT_LT(now, before) << model.name << " tp " << tp;
      EXPECT_GE(now * tp, gib_on_rank(model, fp8, {})) << "parts that are not cut are on every rank";
      before = now;
    }
  }
}

TEST(PlanWeights, UnevenExpertsFillTheFullestRank) {
  const ModelConfig v3 = test::deepseek_v3();  // 256 experts on 24 ranks: 11 on the fullest
  const WeightPlan plan = weights_on_rank(v3, uniform_scheme(find_weight_format("fp8")), {.dp = 24, .ep = 24},
                                          0, find_engine("vllm"));
  for (const Line& line : plan.lines) {
    if (line.key != "weights.experts.routed") continue;
    EXPECT_EQ(std::get<std::int64_t>(line.value), std::int64_t{58} * 11 * 3 * (2048 * 7168 + 16 * 56 * 4));
    EXPECT_NE(line.formula.find("11 experts"), std::string::npos) << line.formula;
  }
}

TEST(PlanWeights, MatricesInEveryFormat) {
  EXPECT_EQ(matrix_bytes(find_weight_format("bf16"), 128, 256), 65536);
  EXPECT_EQ(matrix_bytes(find_weight_format("fp8"), 128, 256), 32768 + 2 * 4);
  EXPECT_EQ(matrix_bytes(find_weight_format("fp8"), 129, 257), 129 * 257 + 2 * 3 * 4);
  EXPECT_EQ(matrix_bytes(find_weight_format("fp8_channel"), 128, 256), 32768 + 128 * 4);
  EXPECT_EQ(matrix_bytes(find_weight_format("fp8_tensor"), 128, 256), 32768 + 4);
  EXPECT_EQ(matrix_bytes(find_weight_format("awq"), 128, 256), 16384 + 128 * 2 * 20 / 8);
  EXPECT_EQ(matrix_bytes(find_weight_format("mxfp4"), 32, 64), 1024 + 32 * 2);
  EXPECT_EQ(matrix_bytes(find_weight_format("nvfp4"), 32, 64), 1024 + 32 * 4);
  EXPECT_EQ(matrix_bytes(find_weight_format("nvfp4"), 0, 64), 0);
  refused([&] { return find_weight_format("fp7"); }, {"fp7"});
}

TEST(PlanWeights, SchemeFollowsTheConfig) {
  ModelConfig v3 = test::deepseek_v3();
  EXPECT_EQ(scheme_of(v3).experts.name, "bf16");
  QuantizationConfig blocks;
  blocks.method = blocks.format = "fp8";
  blocks.weight_bits = 8;
  blocks.block_n = blocks.block_k = 128;
  blocks.scale_bits = 32;
  v3.quantization_config = blocks;
  const WeightScheme fp8 = scheme_of(v3);
  for (const WeightFormat& format : {fp8.attention, fp8.dense, fp8.shared, fp8.experts}) {
    EXPECT_EQ(matrix_bytes(format, 256, 256), 65536 + 16);
  }
  EXPECT_EQ(fp8.router.bits, 16);
  EXPECT_EQ(fp8.embedding.bits, 16);
  QuantizationConfig mxfp4;
  mxfp4.method = mxfp4.format = "mxfp4";
  mxfp4.weight_bits = 4;
  mxfp4.group_size = 32;
  mxfp4.scale_bits = 8;
  mxfp4.experts_only = true;
  v3.quantization_config = mxfp4;
  const WeightScheme experts = scheme_of(v3);
  EXPECT_EQ(matrix_bytes(experts.experts, 32, 64), 1024 + 64);
  EXPECT_EQ(experts.attention.bits, 16);
}

TEST(PlanWeights, WhatTheConfigSaysAndNobodyKnowsIsSaid) {
  ModelConfig model = test::llama_31_8b();
  for (const char* known : {"", "bfloat16", "float16", "float32", "torch.bfloat16", "auto"}) {
    model.torch_dtype = known;
    EXPECT_TRUE(scheme_of(model).doubts.empty()) << known;
  }
  model.torch_dtype = "float13";
  ASSERT_EQ(scheme_of(model).doubts.size(), 1u);
  EXPECT_NE(
      scheme_of(model).doubts[0].find("torch_dtype 'float13' is not known (allowed are bfloat16, float16 and "
                                      "float32): weights are counted as bf16"),
      std::string::npos);
  QuantizationConfig novel;
  novel.method = "aqlm";
  model.quantization_config = novel;
  const WeightScheme scheme = scheme_of(model);
  EXPECT_EQ(scheme.attention.bits, 16);
  ASSERT_EQ(scheme.doubts.size(), 1u);
  EXPECT_NE(scheme.doubts[0].find("'aqlm' cannot be read (known are fp8, "), std::string::npos);
  // The plan says it, until --weights says better.
  PlanRequest request = test::logged_budget("vllm", gib(10), 4096);
  request.weights = scheme;
  const auto says = [&] {
    const std::vector<std::string> all = plan_memory(model, request).warnings;
    return std::ranges::any_of(
        all, [](const std::string& one) { return one.find("'aqlm'") != std::string::npos; });
  };
  EXPECT_TRUE(says());
  request.weights = uniform_scheme(find_weight_format("int4"));
  EXPECT_FALSE(says());
}

TEST(PlanWeights, GgufFilesAreAsLongAsTheyAre) {
  // Llama-3.1-8B as llama.cpp's quantiser writes it; the first 7.8 MB of the files are tables and vocabulary.
  const struct {
    const char* format;
    double bytes;
  } files[] = {
      {"q8_0", 8540775840.}, {"q6_k", 6596011424.}, {"q5_k_m", 5732992416.}, {"q4_k_m", 4920739232.}};
  ModelConfig model = test::llama_31_8b();
  model.max_position = 0;  // no rope table
  for (const auto& file : files) {
    const WeightScheme scheme = uniform_scheme(find_weight_format(file.format));
    const auto bytes = static_cast<double>(weights_on_rank(model, scheme, {}, 0, find_engine("none")).bytes);
    EXPECT_NEAR(bytes / (file.bytes - 7.8e6), 1, 0.005) << file.format << ' ' << bytes;
  }
  // Blocks of ggml: 34 B of 32 weights, 144 B of 256.
  EXPECT_EQ(matrix_bytes(find_weight_format("Q8_0"), 2, 64), 4 * 34);
  EXPECT_EQ(matrix_bytes(find_weight_format("q4_K_S"), 3, 512), 6 * 144);
  EXPECT_EQ(matrix_bytes(find_weight_format("q6_k"), 1, 256), 210);
  EXPECT_EQ(matrix_bytes(find_weight_format("q2_k"), 1, 256), 84);
  EXPECT_EQ(matrix_bytes(find_weight_format("q3_k"), 1, 256), 110);
  EXPECT_EQ(matrix_bytes(find_weight_format("q5_1"), 1, 32), 24);
}

TEST(PlanWeights, FilesOfAnotherEngineWarn) {
  const auto warning = [](const char* engine, const char* format) {
    PlanRequest request = test::logged_budget(engine, gib(10), 4096);
    request.weights = uniform_scheme(find_weight_format(format));
    for (const std::string& one : plan_memory(test::llama_31_8b(), request).warnings) {
      if (one.starts_with("weights: ")) return one;
    }
    return std::string();
  };
  EXPECT_NE(warning("llama.cpp", "fp8").find("llama.cpp has no weight format fp8"), std::string::npos);
  EXPECT_NE(warning("vllm", "q4_k_m").find("q4_k_m is a GGUF format"), std::string::npos);
  for (const char* format : {"bf16", "mxfp4", "q8_0"}) EXPECT_EQ(warning("llama.cpp", format), "") << format;
  for (const char* format : {"bf16", "mxfp4", "fp8", "nvfp4"})
    EXPECT_EQ(warning("vllm", format), "") << format;
}

TEST(PlanWeights, GapsAreNamed) {
  ModelConfig model = test::llama_31_8b();
  EXPECT_TRUE(weights_on_rank(model, {}, {}, 0, find_engine("vllm")).gaps.empty());
  model.multimodal = true;
  ASSERT_EQ(weights_on_rank(model, {}, {}, 0, find_engine("vllm")).gaps.size(), 1u);
  model.vocab_size = 0;
  ASSERT_EQ(weights_on_rank(model, {}, {}, 0, find_engine("vllm")).gaps.size(), 2u);
  EXPECT_NE(weights_on_rank(model, {}, {}, 0, find_engine("vllm")).gaps[1].find("no vocab_size"),
            std::string::npos);
  refused([&] { return weights_on_rank(model, {}, {}, 1, find_engine("vllm")); }, {"stage 1"});
}

TEST(PlanWeights, KvBIsKeptTwiceForAbsorbedDecoding) {
  // Heads / tp x (nope + V) x latent x 2 B a layer: V3 at TP16 61 x 8 x 256 x 512 x 2 B. vLLM 0.8.4 logged 40.3173 GiB
  // (vllm#16692) for the 40.196 that the checkpoint stores on a rank.
  const ModelConfig v3 = load_model("deepseek-v3");
  const auto copies = [&](const ModelConfig& model, const Layout& layout, const char* engine, int stage = 0) {
    return absorbed_bytes(model, scheme_of(model), layout, stage, find_engine(engine), false);
  };
  EXPECT_EQ(copies(v3, {.tp = 16}, "vllm@0.8.4"), 61LL * 8 * 256 * 512 * 2);
  const std::int64_t stored =
      weights_on_rank(v3, scheme_of(v3), {.tp = 16}, 0, find_engine("vllm@0.8.4")).bytes;
  EXPECT_NEAR(static_cast<double>(stored + copies(v3, {.tp = 16}, "vllm@0.8.4")) / test::kGiB, 40.3173,
              0.005);
  EXPECT_EQ(copies(v3, {.tp = 8, .pp = 2, .stage_layers = {31, 30}}, "vllm", 1), 30LL * 16 * 256 * 512 * 2);
  for (const char* engine : {"vllm@0.6", "sglang", "tensorrt-llm", "none"})
    EXPECT_EQ(copies(v3, {.tp = 8}, engine), 0) << engine;
  EXPECT_EQ(copies(load_model("kimi-k2.5"), {.tp = 8}, "vllm"), 0) << "its attention is bf16 already";
  EXPECT_EQ(copies(load_model("llama-3.1-8b"), {.tp = 8}, "vllm"), 0);
  // GLM-5.1-FP8 at TP8: 89.34 GiB logged by vLLM 0.19.1, of which the checkpoint's part is 88.71.
  const ModelConfig glm = load_model("glm-5");
  const WeightScheme fp8 = uniform_scheme(find_weight_format("fp8"));
  const double gib = static_cast<double>(weights_on_rank(glm, fp8, {.tp = 8}, 0, find_engine("vllm")).bytes +
                                         absorbed_bytes(glm, fp8, {.tp = 8}, 0, find_engine("vllm"), false)) /
                     test::kGiB;
  EXPECT_NEAR(gib, 89.34, 0.005 * 89.34);
}

TEST(PlanWeights, TheVisionTowerOfKimiK25) {
  // Its shards hold 554.27 GiB of tensors; vLLM logged 71.16 GiB on a rank of TP8, which cuts the tower's layers too.
  const ModelConfig kimi = load_model("kimi-k2.5");
  ASSERT_TRUE(kimi.tower);
  const auto gib = [&](const Layout& layout, const char* engine) {
    return static_cast<double>(weights_on_rank(kimi, scheme_of(kimi), layout, 0, find_engine(engine)).bytes) /
           test::kGiB;
  };
  const double rope = 262144.0 * 64 * 2 / test::kGiB;
  EXPECT_NEAR(gib({}, "vllm") - rope, 554.27, 0.02);
  EXPECT_NEAR(gib({.tp = 8}, "vllm"), 71.16, 0.05);
  // 27 layers x (4 x 1152 x 1152 + 2 x 1152 x 4304), patches of 14 x 14 x 3, 64 x 64 positions, 4608 -> 4608 -> 7168.
  std::int64_t params = 0;
  for (const WeightPart& part : tower_weights(kimi)) params += part.copies * part.rows * part.cols;
  EXPECT_EQ(params, 27LL * (4 * 1152 * 1152 + 2 * 1152 * 4304 + 9 * 1152 + 4304) +
                        1152LL * (588 + 1 + 4096 + 4) + 4609LL * 4608 + 7168LL * 4609);
  // It lies on the first stage alone, and no gap is left to name.
  EXPECT_TRUE(weight_gaps(kimi).empty());
  for (const Line& line : weights_on_rank(kimi, scheme_of(kimi), {.pp = 2}, 1, find_engine("vllm")).lines)
    EXPECT_FALSE(line.key.starts_with("weights.other")) << line.key;
}

}  // namespace
}  // namespace mla::capacity
