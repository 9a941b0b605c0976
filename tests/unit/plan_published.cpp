// SPDX-License-Identifier: Apache-2.0
// The described models against published figures: bytes of a token, parameters, weights and capacity by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "mla/capacity.hpp"
#include "mla/device.hpp"
#include "mla/model.hpp"
#include "plan/explain.hpp"
#include "plan/format_rules.hpp"
#include "plan/search.hpp"
#include "plan/weight_padding.hpp"
#include "plan_models.hpp"

namespace mla::capacity {
namespace {

struct TokenBytes {
  const char* model;
  std::int64_t bf16, fp8, fp8_ds_mla, index_keys, q8_0, llama_cpp, mha;  ///< 0: none
  double ratio;
  std::int64_t state;
};

// Each figure is layers x width, worked out from the configs: 1152 L, 576 L, 656 L, 132 Lidx, 612 L, 2176 L
// and (n + r + v) x H x 2 x L for 512 + 64 rows.
constexpr TokenBytes kPublished[] = {
    {"deepseek-v2", 69120, 34560, 39360, 0, 36720, 130560, 4915200, 71.1, 0},
    {"deepseek-v2-lite", 31104, 15552, 17712, 0, 16524, 58752, 276480, 8.9, 0},
    {"moonlight", 31104, 15552, 17712, 0, 16524, 58752, 276480, 8.9, 0},
    {"deepseek-v3", 70272, 35136, 40016, 0, 37332, 132736, 4997120, 71.1, 0},
    {"deepseek-r1", 70272, 35136, 40016, 0, 37332, 132736, 4997120, 71.1, 0},
    {"mistral-large-3", 70272, 35136, 40016, 0, 37332, 132736, 4997120, 71.1, 0},
    {"openpangu-ultra-moe", 70272, 35136, 40016, 0, 37332, 132736, 4997120, 71.1, 0},
    {"deepseek-v3.2", 70272, 35136, 40016, 8052, 37332, 132736, 4997120, 71.1, 0},
    {"kimi-k2", 70272, 35136, 40016, 0, 37332, 132736, 2498560, 35.6, 0},
    {"kimi-k2.5", 70272, 35136, 40016, 0, 37332, 132736, 2498560, 35.6, 0},
    {"glm-4.7-flash", 54144, 27072, 30832, 0, 28764, 102272, 962560, 17.8, 0},
    {"glm-5", 89856, 44928, 51168, 10296, 47736, 169728, 5111808, 56.9, 0},
    {"glm-5.2", 89856, 44928, 51168, 2772, 47736, 169728, 5111808, 56.9, 0},
    {"longcat-flash", 64512, 32256, 36736, 0, 34272, 121856, 2293760, 35.6, 0},
    {"minicpm3-4b", 35712, 17856, 0, 0, 18972, 793600, 793600, 22.2, 0},  // llama.cpp keeps its K and V heads
    {"mistral-small-4", 23040, 11520, 0, 0, 12240, 41472, 589824, 25.6, 0},
    {"kimi-linear", 8064, 4032, 4592, 0, 4284, 15232, 143360, 17.8, 43417600},
    {"kimi-k3", 27648, 13824, 15744, 0, 14688, 52224, 1474560, 53.3, 449372160},
};

class PublishedBytes : public testing::TestWithParam<TokenBytes> {};

TEST_P(PublishedBytes, OfAToken) {
  const TokenBytes& want = GetParam();
  const ModelConfig model = load_model(want.model);
  const auto cost = [&](const char* format, const char* engine) {
    return cache_cost(model, find_kv_format(format), find_engine(engine));
  };
  const CacheCost bf16 = cost("bf16", "none");
  EXPECT_EQ(bf16.bytes_per_token, want.bf16);
  EXPECT_EQ(bf16.index_bytes_per_token, want.index_keys);
  EXPECT_EQ(bf16.state_bytes, want.state);
  EXPECT_EQ(cost("fp8", "none").bytes_per_token, want.fp8);
  EXPECT_EQ(cost("q8_0", "none").bytes_per_token, want.q8_0);
  EXPECT_EQ(cost("f16", "llama.cpp@2025-06").bytes_per_token, want.llama_cpp);
  if (want.fp8_ds_mla > 0) {
    EXPECT_EQ(cost("fp8_ds_mla", "none").bytes_per_token, want.fp8_ds_mla);
  } else {
    test::refused([&] { return cost("fp8_ds_mla", "none"); }, {"no layout"});
  }
  const std::int64_t mha = attention_bytes(model).mha * model.count(AttentionKind::kMla);
  EXPECT_EQ(mha, want.mha);
  EXPECT_NEAR(static_cast<double>(mha) / static_cast<double>(want.bf16), want.ratio, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedBytes, testing::ValuesIn(kPublished),
                         [](const testing::TestParamInfo<TokenBytes>& one) {
                           std::string name;
                           for (const char c : std::string(one.param.model)) {
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           }
                           return name;
                         });

TEST(Published, BytesOfAPlainTokenInModelsWithHeads) {
  const struct {
    const char* model;
    double bytes;
  } cases[] = {{"llama-2-7b", 524288},     {"llama-3.1-8b", 131072},    {"llama-3.1-70b", 327680},
               {"llama-3.1-405b", 516096}, {"qwen3-235b-a22b", 192512}, {"minimax-m2.7", 253952}};
  for (const auto& c : cases) {
    EXPECT_EQ(cache_cost(load_model(c.model), find_kv_format("bf16"), find_engine("none")).bytes_per_token,
              c.bytes)
        << c.model;
  }
}

TEST(Published, ParameterCounts) {
  const struct {
    const char* model;
    double billions, tolerance;
  } cases[] = {{"deepseek-v2", 235.741, 0.001},     {"deepseek-v2-lite", 15.706484224, 0.00001},
               {"deepseek-v3", 671.026, 0.001},     {"deepseek-v3.2", 671.878, 0.001},
               {"kimi-k2", 1026.408, 0.001},        {"moonlight", 15.960, 0.001},
               {"glm-4.7-flash", 29.943, 0.001},    {"glm-5", 743.911, 0.001},
               {"glm-5.2", 743.377, 0.001},         {"longcat-flash", 560.665, 0.001},
               {"minicpm3-4b", 4.074, 0.001},       {"mistral-large-3", 673.421, 0.001},
               {"mistral-small-4", 118.973, 0.001}, {"openpangu-ultra-moe", 719.09, 0.01},
               {"llama-3.1-8b", 8.030261248, 1e-9}, {"qwen3-30b-a3b", 30.532122624, 1e-9},
               {"deepseek-v4-flash", 284, 1},       {"kimi-linear", 49.1, 0.2},
               {"gpt-oss-120b", 116.8, 0.2},        {"gpt-oss-20b", 20.9, 0.1},
               {"llama-3.1-70b", 70.55, 0.01},      {"gemma-3-27b", 27.0, 0.3}};
  for (const auto& c : cases) {
    EXPECT_NEAR(static_cast<double>(parameter_count(load_model(c.model))) / 1e9, c.billions, c.tolerance)
        << c.model;
  }
}

TEST(Published, WeightsOfDeepSeekV3AsItIsShipped) {
  const ModelConfig v3 = load_model("deepseek-v3");
  const auto on_rank = [&](const Layout& layout) {
    return static_cast<double>(weights_on_rank(v3, scheme_of(v3), layout, 0, find_engine("vllm")).bytes) /
           test::kGiB;
  };
  EXPECT_NEAR(on_rank({.tp = 8}), 79.312, 0.0005);
  EXPECT_NEAR(on_rank({.dp = 8, .ep = 8}), 93.935, 0.0005);
  // DeepSeek-V3#205: stage of 12 MoE and 3 dense layers, TP8 PP4, embedding on it: 16.9583 GiB with the head,
  // too.
  const WeightPlan stage = weights_on_rank(
      v3, scheme_of(v3), {.tp = 8, .pp = 4, .stage_layers = {15, 15, 16, 15}}, 0, find_engine("vllm@0.6"));
  const double head = 129280.0 * 7168 * 2 / 8;
  EXPECT_NEAR((static_cast<double>(stage.bytes) + head) / test::kGiB, 16.9583, 0.0002);
}

TEST(Published, PaddedFourBitExpertsAreSaid) {
  // gpt-oss-120b, 2880 x 2880 experts: Marlin stores 2944 x 3072 of them. 36 x 128 x 3 x (2944 x 3072 -
  // 2880 x 2880) x 17/32 B = 5.13 GiB more than 60.69 GiB; 65.9651 GiB were logged (within 0.3 %).
  const ModelConfig model = load_model("gpt-oss-120b");
  const WeightPlan plan = weights_on_rank(model, scheme_of(model), {}, 0, find_engine("vllm@0.10"));
  const auto padded = padded_experts(model, scheme_of(model), {}, plan);
  ASSERT_TRUE(padded.has_value());
  EXPECT_EQ(padded->intermediate, 2944);
  EXPECT_EQ(padded->hidden, 3072);
  const double extra = 36.0 * 128 * 3 * (2944 * 3072 - 2880 * 2880) * 17 / 32;
  EXPECT_NEAR(static_cast<double>(padded->extra_bytes), extra, 1e6);
  EXPECT_NEAR(static_cast<double>(plan.bytes + padded->extra_bytes) / test::kGiB, 65.9651, 0.003 * 65.9651);
  // Half of it on each of two GPUs: 1440 grows to 1536.
  const Layout two{.tp = 2};
  const WeightPlan half = weights_on_rank(model, scheme_of(model), two, 0, find_engine("vllm@0.10"));
  EXPECT_EQ(padded_experts(model, scheme_of(model), two, half)->intermediate, 1536);
  // Widths that fit and other formats are as they are.
  const ModelConfig v3 = load_model("deepseek-v3");
  EXPECT_FALSE(padded_experts(v3, uniform_scheme(find_weight_format("mxfp4")), {}, plan).has_value());
  EXPECT_FALSE(padded_experts(model, uniform_scheme(find_weight_format("nvfp4")), {}, plan).has_value());
  // The plan says so, and a log's line is explained by it.
  PlanRequest request = test::logged_budget("vllm", test::gib(4), 4096);
  request.weights = scheme_of(model);
  const MemoryPlan memory = plan_memory(model, request);
  EXPECT_TRUE(std::any_of(memory.warnings.begin(), memory.warnings.end(), [](const std::string& one) {
    return one.find("2,944 x 3,072") != std::string::npos && one.find("5.13 GiB") != std::string::npos;
  }));
  const Explanation log = explain(read_log("Model loading took 65.9651 GiB and 9.1 seconds"), model);
  ASSERT_EQ(log.numbers.size(), 1u);
  EXPECT_TRUE(log.numbers[0].matches);
  EXPECT_NE(log.numbers[0].how.find("Marlin"), std::string::npos) << log.numbers[0].how;
}

/// What each model of the project's list takes on 8 x H200, worked out by hand from the formulas.
TEST(Published, CapacityOfEachNamedModel) {
  const struct {
    const char* model;
    double kv_gib;  ///< cache budget given
    std::int64_t context;
    Layout layout;
    std::int64_t sequences;
  } cases[] = {
      // 40 GiB = 42,949,672,960 B; V3: 1024 blocks x 4,497,408 B = 4.289 GiB a 64k sequence: 9 a rank
      {"deepseek-v3", 40, 65536, {.tp = 8}, 9},
      {"deepseek-v3", 40, 65536, {.dp = 8, .ep = 8}, 72},
      // V3.2: (70,272 + 8,052) x 65,536 = 4.780 GiB: 8
      {"deepseek-v3.2", 40, 65536, {.tp = 8}, 8},
      {"kimi-k2", 40, 65536, {.tp = 8}, 9},
      // GLM-5.2: (89,856 + 2,772) x 65,536 = 5.654 GiB: 7
      {"glm-5.2", 40, 65536, {.tp = 8}, 7},
      // GLM-4.7-Flash: 54,144 x 65,536 = 3.305 GiB: 12
      {"glm-4.7-flash", 40, 65536, {.tp = 4}, 12},
      // MiniCPM3, whose vLLM class keeps 40 heads of 96 + 96, TP8: 62 x 5 x 192 x 2 = 119,040 B a token, blocks of 16:
      // 22,549 usable / 2,048: 11
      {"minicpm3-4b", 40, 32768, {.tp = 8}, 11},
      // Llama-3.1-70B, TP8: 40,960 x 65,536 = 2.5 GiB: exactly 16 without the null block: 15
      {"llama-3.1-70b", 40, 65536, {.tp = 8}, 15},
      // Kimi-Linear, TP2: page 1,105,920, 7 layers: 7,741,440 a block; 5547 blocks; 65,536 / 960 -> 69 + 3:
      // 77
      {"kimi-linear", 40, 65536, {.tp = 2}, 77},
      // Gemma-3-27B, TP1: page 131,072 x 10 layers: 32,767 usable; 2048 + 6 x (ceil(9215 / 16) + 1 = 577) =
      // 5510: 5
      {"gemma-3-27b", 40, 32768, {}, 5},
      // gpt-oss-120b, TP1: page 32,768 x 18 = 589,824: 72,817 usable; 4096 + (ceil(8319 / 16) + 1 = 521) =
      // 4617: 15
      {"gpt-oss-120b", 40, 65536, {}, 15},
  };
  for (const auto& c : cases) {
    PlanRequest request = test::logged_budget("vllm", test::gib(c.kv_gib), c.context);
    request.layout = c.layout;
    EXPECT_EQ(plan_memory(load_model(c.model), request).sequences, c.sequences)
        << c.model << to_text(c.layout);
  }
}

TEST(Published, MiniCPM3KeepsHeadsWhereItsEngineDoes) {
  const ModelConfig model = load_model("minicpm3-4b");
  const auto token = [&](const char* engine, int tp = 1) {
    return cache_cost(model, find_kv_format("bf16"), find_engine(engine), tp).bytes_per_token;
  };
  EXPECT_EQ(token("vllm"), 62.0 * 40 * (96 + 96) * 2) << "952,320: V padded to the width of K";
  EXPECT_EQ(token("vllm@0.6"), 952320);
  EXPECT_EQ(token("vllm", 8), 952320.0 / 8) << "heads are split";
  EXPECT_EQ(token("lmcache"), 952320);
  EXPECT_EQ(token("llama.cpp"), 62.0 * 40 * (96 + 64) * 2) << "793,600";
  EXPECT_EQ(token("sglang"), 62.0 * (256 + 32) * 2) << "its class has the latent";
  EXPECT_EQ(token("none"), 35712);
  EXPECT_FALSE(caches_latent(model, find_engine("vllm")));
  EXPECT_TRUE(caches_latent(model, find_engine("sglang")));
  EXPECT_TRUE(caches_latent(load_model("deepseek-v3"), find_engine("vllm")));
  PlanRequest request = test::logged_budget("vllm", test::gib(40), 8192);
  const MemoryPlan plan = plan_memory(model, request);
  EXPECT_EQ(plan.block, 16);
  const auto why = std::ranges::find_if(plan.warnings, [](const std::string& one) {
    return one.find("952,320 B a token, not its latent (35,712 B a token)") != std::string::npos &&
           one.find("minicpm3.py") != std::string::npos;
  });
  EXPECT_NE(why, plan.warnings.end());
  const auto formula = std::ranges::find(plan.lines, "cache.heads", &Line::key);
  ASSERT_NE(formula, plan.lines.end());
  EXPECT_EQ(formula->formula, "62 layers x 40 heads x (96 + 96) x 2 B");
  EXPECT_NE(formula->source.find("minicpm3.py"), std::string::npos);
  // No copies to warn of, and nothing for dcp to split until tp has more ranks than heads.
  request.layout = {.tp = 8};
  for (const std::string& one : plan_memory(model, request).warnings)
    EXPECT_EQ(one.find("replicates the latent"), std::string::npos) << one;
  request.layout = {.tp = 8, .dcp = 2};
  test::refused([&] { return plan_memory(model, request); }, {"dcp 2", "at least 80", "40 K and V heads"});
}

TEST(Published, EveryDescribedModelPlansOnEveryEngine) {
  const Device h200 = load_device("h200");
  for (const ModelConfig& model : list_models()) {
    for (const char* engine : {"vllm", "vllm@0.6", "sglang", "tensorrt-llm", "llama.cpp", "none"}) {
      PlanRequest request = test::logged_budget(engine, test::gib(60), 4096);
      request.gpu_memory_bytes = h200.memory_bytes;
      request.weights = scheme_of(model);
      request.with_mtp = true;
      if (only_fp8_entries(model, request.engine)) request.cache = find_kv_format("fp8");
      const MemoryPlan plan = plan_memory(model, request);
      EXPECT_GT(plan.sequences, 0) << model.name << ' ' << engine;
      EXPECT_GT(plan.stages[0].weight_bytes, 0) << model.name;
    }
  }
}

}  // namespace
}  // namespace mla::capacity
