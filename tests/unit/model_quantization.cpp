// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "expect_error.hpp"
#include "json_text.hpp"
#include "mla/model.hpp"

namespace {

using mla::QuantizationConfig;

QuantizationConfig quantization(const std::string& block, const std::string& key = "quantization_config") {
  const mla::ModelConfig model = mla::parse_model(mla_config().with(key, block).text(), "config.json");
  EXPECT_TRUE(model.quantization_config.has_value()) << block;
  return model.quantization_config.value_or(QuantizationConfig{});
}

constexpr const char* kAttention = "model.layers.2.self_attn.o_proj";
constexpr const char* kExpert = "model.layers.2.mlp.experts.17.down_proj";
constexpr const char* kShared = "model.layers.2.mlp.shared_experts.down_proj";
constexpr const char* kDense = "model.layers.0.mlp.down_proj";

TEST(ModelQuantization, BlockFp8) {
  const QuantizationConfig config =
      quantization(R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 64]})");
  EXPECT_EQ(config.format, "fp8");
  EXPECT_EQ(config.block_n, 128);
  EXPECT_EQ(config.block_k, 64);
  EXPECT_EQ(config.scale_bits, 32);
  for (const char* module : {kAttention, kExpert, kShared, kDense})
    EXPECT_TRUE(config.covers(module)) << module;
  // Never quantised, listed or not.
  for (const char* module : {"lm_head", "model.embed_tokens", "model.layers.3.mlp.gate", "model.norm",
                             "model.layers.1.input_layernorm", "model.layers.1.mlp.router"}) {
    EXPECT_FALSE(config.covers(module)) << module;
  }
  EXPECT_TRUE(config.covers("model.layers.0.mlp.gate_proj"));
}

TEST(ModelQuantization, ListsOfModules) {
  const QuantizationConfig config = quantization(
      R"({"quant_method": "fp8",
          "modules_to_not_convert": ["model.layers.0.self_attn", "shared_experts", "up_proj"]})");
  EXPECT_FALSE(config.covers("model.layers.0.self_attn.o_proj"));
  EXPECT_TRUE(config.covers("model.layers.10.self_attn.o_proj"));
  EXPECT_FALSE(config.covers(kShared));
  EXPECT_FALSE(config.covers("model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(config.covers("model.layers.0.mlp.gate_up_proj"));
}

// Kimi-K2.5: int4 experts, all else bf16, by regular expressions.
TEST(ModelQuantization, CompressedTensors) {
  const QuantizationConfig config =
      quantization(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
      "group_size": 32,
      "symmetric": true}}}, "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
      "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]})");
  EXPECT_EQ(config.format, "int4");
  EXPECT_EQ(config.group_size, 32);
  EXPECT_EQ(config.scale_bits, 16);
  EXPECT_FALSE(config.zero_points);
  EXPECT_TRUE(config.covers(kExpert));
  EXPECT_FALSE(config.covers(kAttention));
  EXPECT_FALSE(config.covers(kShared));
  EXPECT_FALSE(config.covers(kDense));
}

TEST(ModelQuantization, ExpressionsThatAreNoGlobsKeepNothing) {
  for (const char* expression :
       {"re:model[0-9]+", "re:(a", "re:(a|b)(c|d)", "re:a{3}", "re:(((((", "re:", "re:\\\\"}) {
    const QuantizationConfig config =
        quantization(std::string(R"({"quant_method": "fp8", "ignore": [")") + expression + "\"]}");
    static_cast<void>(config.covers(kAttention));  // any answer, no crash
  }
  EXPECT_TRUE(quantization(R"({"quant_method": "fp8", "ignore": ["re:model[0-9]+"]})").covers(kAttention));
  // A pattern made to be slow is answered at once.
  const std::string stars(2000, '*');
  EXPECT_TRUE(
      quantization("{\"quant_method\": \"fp8\", \"ignore\": [\"" + stars + "zzz\"]}").covers(kAttention));
}

TEST(ModelQuantization, Modelopt) {
  const QuantizationConfig config = quantization(R"({"quant_method": "modelopt", "quant_algo": "NVFP4",
      "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
      "ignore": ["language_model.model.layers.2.self_attn*", "language_model.model.layers.0*"],
      "kv_cache_scheme": {"num_bits": 8, "type": "float"}})");
  EXPECT_EQ(config.format, "nvfp4");
  EXPECT_EQ(config.group_size, 16);
  EXPECT_EQ(config.scale_bits, 8);
  EXPECT_EQ(config.kv_cache_bits, 8);
  EXPECT_FALSE(config.covers(kAttention));
  EXPECT_FALSE(config.covers(kDense));
  EXPECT_TRUE(config.covers(kExpert));
}

TEST(ModelQuantization, MixedPrecisionNamesItsModules) {
  const QuantizationConfig config =
      quantization(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
      "quantized_layers": {"model.layers.2.self_attn.o_proj": {"quant_algo": "FP8"},
                           "model.layers.2.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}}})");
  EXPECT_EQ(config.format, "fp8");
  EXPECT_EQ(config.expert_format, "nvfp4");
  EXPECT_TRUE(config.covers(kAttention));
  EXPECT_TRUE(config.covers(kExpert));
  EXPECT_FALSE(config.covers(kDense));
}

TEST(ModelQuantization, OtherMethods) {
  const QuantizationConfig awq =
      quantization(R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true})");
  EXPECT_EQ(awq.format, "int4");
  EXPECT_TRUE(awq.zero_points);
  const QuantizationConfig gptq =
      quantization(R"({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": true})");
  EXPECT_EQ(gptq.format, "int8");
  EXPECT_EQ(gptq.weight_bits, 8);
  const QuantizationConfig mxfp4 = quantization(R"({"quant_method": "mxfp4"})");
  EXPECT_TRUE(mxfp4.experts_only);
  EXPECT_TRUE(mxfp4.covers(kExpert));
  EXPECT_FALSE(mxfp4.covers(kAttention));
  EXPECT_EQ(quantization(R"({"group_size": 64, "bits": 4, "mode": "affine"})").format, "int4");
  const QuantizationConfig novel = quantization(R"({"quant_method": "novel"})");
  EXPECT_TRUE(novel.format.empty());
  EXPECT_EQ(novel.method, "novel");
}

TEST(ModelQuantization, WhatIsNoObjectIsSaid) {
  for (const char* value : {"[]", "\"awq\"", "4"}) {
    const mla::ModelConfig model =
        mla::parse_model(mla_config().with("quantization_config", value).text(), "config.json");
    EXPECT_FALSE(model.quantization_config.has_value());
    ASSERT_EQ(model.warnings.size(), 1U) << value;
    EXPECT_NE(model.warnings[0].find("quantization_config is "), std::string::npos) << model.warnings[0];
  }
  EXPECT_TRUE(mla::parse_model(mla_config().with("quantization_config", "null").text(), "config.json")
                  .warnings.empty());
}

TEST(ModelQuantization, ExpertsOfV4) {
  const mla::ModelConfig model = mla::load_model("deepseek-v4-flash");
  ASSERT_TRUE(model.quantization_config.has_value());
  EXPECT_EQ(model.quantization_config->expert_format, "fp4");
  EXPECT_EQ(model.quantization_config->format, "fp8");
  EXPECT_EQ(model.quantization_config->scale_bits, 8);
}

TEST(ModelQuantization, BadInput) {
  const auto refused = [](const std::string& block, std::vector<std::string_view> parts) {
    expect_error(
        [&] { return mla::parse_model(mla_config().with("quantization_config", block).text(), "c"); },
        mla::ErrorCode::kParse, parts);
  };
  refused(R"({"quant_method": 4})", {"quantization_config.quant_method", "a text"});
  refused(R"({"quant_method": "fp8", "weight_block_size": [128]})",
          {"weight_block_size", "two whole numbers"});
  refused(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", {"weight_block_size[0]"});
  refused(R"({"quant_method": "awq", "bits": 99})", {"bits", "99"});
  refused(R"({"quant_method": "fp8", "ignore": "lm_head"})", {"ignore", "a list of texts"});
  expect_error(
      [] {
        return mla::parse_model(mla_config().with("quantization_config", R"({"quant_method": "awq"})").text(),
                                "c");
      },
      mla::ErrorCode::kInvalidArgument, {"bits is missing"});
}

}  // namespace
