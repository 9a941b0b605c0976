// SPDX-License-Identifier: Apache-2.0
// Which layer does what: lists, groups, windows, blocks, experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "model_reading.hpp"

namespace {

using mla::AttentionKind;
using mla::ErrorCode;
using mla::ModelConfig;

JsonText kimi_linear(std::string_view full, std::string_view kda) {
  return mla_config()
      .with("model_type", "\"kimi_linear\"")
      .with("num_nextn_predict_layers", "0")
      .with("linear_attn_config", JsonText{{"full_attn_layers", std::string(full)},
                                           {"kda_layers", std::string(kda)},
                                           {"num_heads", "32"},
                                           {"head_dim", "128"},
                                           {"short_conv_kernel_size", "4"}}
                                      .text());
}

// 7: hybrids.
TEST(ModelLayers, LayerListsFromOneAndFromZero) {
  const ModelConfig from_one = parse(kimi_linear("[4]", "[1, 2, 3]"));
  EXPECT_EQ(layers_of(from_one, AttentionKind::kMla), (std::vector<int>{3}));
  const ModelConfig from_zero = parse(kimi_linear("[3]", "[0, 1, 2]"));
  EXPECT_EQ(layers_of(from_zero, AttentionKind::kMla), (std::vector<int>{3}));
  // Attention layers alone: Kimi's own counting.
  EXPECT_EQ(layers_of(parse(kimi_linear("[4]", "[]")), AttentionKind::kMla), (std::vector<int>{3}));
  refused(kimi_linear("[4]", "[1, 2]"), ErrorCode::kParse, {"full_attn_layers", "each of the 4 layers once"});
  refused(kimi_linear("[4]", "[1, 2, 4]"), ErrorCode::kParse, {"each of the 4 layers once"});
  refused(kimi_linear("[0]", "[]"), ErrorCode::kParse, {"numbers from 1 to 4"});
  refused(kimi_linear("[5]", "[1, 2, 3]"), ErrorCode::kParse, {"from 0 to 4", "5"});
  refused(kimi_linear("4", "[1, 2, 3]"), ErrorCode::kParse, {"a list of whole numbers"});
  refused(kimi_linear("[]", "[1, 2, 3, 4]"), ErrorCode::kInvalidArgument, {"without one attention layer"});
}

TEST(ModelLayers, RecurrentState) {
  const ModelConfig model = parse(kimi_linear("[4]", "[1, 2, 3]"));
  ASSERT_TRUE(model.recurrent.has_value());
  // 32 heads x 128 x 128 x 4 B, and 3 x 4096 channels x 3 columns x 2 B.
  EXPECT_EQ(model.recurrent->recurrence_bytes(), 2'097'152);
  EXPECT_EQ(model.recurrent->conv_bytes(), 73'728);
  EXPECT_EQ(model.layers.front().state_bytes, 2'170'880);
  EXPECT_EQ(model.layers.back().state_bytes, 0);
}

TEST(ModelLayers, LayerGroups) {
  const JsonText ling = mla_config()
                            .with("model_type", "\"bailing_hybrid\"")
                            .with("architectures", R"(["BailingMoeV3ForCausalLM"])")
                            .with("num_hidden_layers", "11")
                            .with("head_dim", "64")
                            .with("layer_group_size", "4")
                            .with("short_conv_kernel_size", "4");
  // The last of each group, and all of the partial one.
  EXPECT_EQ(layers_of(parse(ling), AttentionKind::kMla), (std::vector<int>{3, 7, 8, 9, 10}));
  EXPECT_EQ(parse(ling).recurrent->kind, mla::RecurrentKind::kKda);
  EXPECT_EQ(parse(ling.without("short_conv_kernel_size")).recurrent->kind, mla::RecurrentKind::kLightning);
}

TEST(ModelLayers, LayerTypes) {
  const JsonText types =
      mla_config()
          .with("layer_types", R"(["linear_attention", "deepseek_sparse_attention",
                                                      "linear_attention", "full_attention"])")
          .with("linear_attn_config", R"({"num_heads": 4, "head_dim": 32, "short_conv_kernel_size": 4})");
  EXPECT_EQ(layers_of(parse(types), AttentionKind::kMla), (std::vector<int>{1, 3}));
  refused(types.with("layer_types", R"(["full_attention"])"), ErrorCode::kParse,
          {"layer_types", "each of the 4 layers"});
  refused(types.with("layer_types", R"(["full_attention", "novel", "full_attention", "full_attention"])"),
          ErrorCode::kParse, {"'novel'", "full_attention"});
  refused(types.with("layer_types", R"(["full_attention", 3, "full_attention", "full_attention"])"),
          ErrorCode::kParse, {"a list of texts"});
}

// 8: LongCat.
TEST(ModelLayers, TwoAttentionsALayer) {
  const JsonText longcat = mla_config()
                               .with("model_type", "\"longcat_flash\"")
                               .with("architectures", R"(["LongcatFlashForCausalLM"])")
                               .without("num_hidden_layers")
                               .without("intermediate_size")
                               .without("num_nextn_predict_layers")
                               .without("first_k_dense_replace")
                               .with("num_layers", "4")
                               .with("ffn_hidden_size", "4096")
                               .with("moe_topk", "6")
                               .with("zero_expert_num", "32")
                               .with("mla_scale_q_lora", "true")
                               .with("mla_scale_kv_lora", "true");
  const ModelConfig model = parse(longcat);
  EXPECT_EQ(model.num_layers, 4);
  EXPECT_EQ(model.count(AttentionKind::kMla), 8);
  EXPECT_EQ(model.layers[1].model_layer, 0);
  EXPECT_EQ(model.ffn.front().dense_count, 2);
  EXPECT_TRUE(model.ffn.front().moe);
  EXPECT_EQ(model.moe->zero_experts, 32);
  EXPECT_DOUBLE_EQ(model.mla_kv_multiplier, std::sqrt(1024.0 / 512));
  EXPECT_EQ(parse(longcat.with("num_hidden_layers", "8")).count(AttentionKind::kMla), 8);
  EXPECT_EQ(parse(longcat.with("num_hidden_layers", "4")).count(AttentionKind::kMla), 8);
  refused(longcat.with("num_hidden_layers", "5"), ErrorCode::kParse, {"num_hidden_layers", "4 or 8"});
  refused(longcat.without("num_layers").with("num_hidden_layers", "8"), ErrorCode::kInvalidArgument,
          {"num_layers is missing"});
}

// 13: windows that are there but off.
TEST(ModelLayers, Windows) {
  const auto windows = [](const JsonText& config) {
    const ModelConfig model = parse(config);
    return std::count_if(model.layers.begin(), model.layers.end(),
                         [](const mla::LayerCache& l) { return l.window > 0; });
  };
  const JsonText window = gqa_config().with("model_type", "\"mistral\"").with("sliding_window", "4096");
  EXPECT_EQ(windows(window), 8);
  EXPECT_EQ(windows(window.with("sliding_window", "null")), 0);
  EXPECT_EQ(windows(window.with("use_sliding_window", "false")), 0);
  EXPECT_EQ(windows(window.with("sliding_window", "131072")), 0);
  EXPECT_EQ(windows(window.with("sliding_window_pattern", "4")), 6);
  EXPECT_EQ(windows(window.with("model_type", "\"gemma2\"")), 4);
  EXPECT_EQ(windows(window.with("model_type", "\"gemma3_text\"")), 7);
  const JsonText qwen = window.with("model_type", "\"qwen2\"").with("use_sliding_window", "true");
  EXPECT_EQ(windows(qwen.with("max_window_layers", "6")), 2);
  EXPECT_NE(mla::is_sparse(parse(window)).reason.find("8 of 8 layers have a sliding window"),
            std::string::npos);
  EXPECT_FALSE(mla::is_sparse(parse(window)).yes);
  refused(gqa_config().with("num_hidden_layers", "1").with("layer_types", R"(["sliding_attention"])"),
          ErrorCode::kInvalidArgument, {"sliding_window is missing"});
}

TEST(ModelLayers, LayersOfTwoShapes) {
  const ModelConfig mimo = parse(gqa_config()
                                     .with("num_hidden_layers", "2")
                                     .with("num_key_value_heads", "4")
                                     .with("head_dim", "192")
                                     .with("v_head_dim", "128")
                                     .with("sliding_window", "128")
                                     .with("hybrid_layer_pattern", "[0, 1]")
                                     .with("swa_num_key_value_heads", "8")
                                     .with("swa_head_dim", "192")
                                     .with("swa_v_head_dim", "128"));
  EXPECT_EQ(mimo.layers[0].kv_heads, 4);
  EXPECT_EQ(mimo.layers[1].kv_heads, 8);
  EXPECT_EQ(mimo.layers[0].head_dim_v, 128);
  EXPECT_EQ(mimo.layers[1].window, 128);
  const ModelConfig gemma = parse(gqa_config()
                                      .with("num_hidden_layers", "2")
                                      .with("head_dim", "256")
                                      .with("sliding_window", "1024")
                                      .with("layer_types", R"(["sliding_attention", "full_attention"])")
                                      .with("num_global_key_value_heads", "4")
                                      .with("global_head_dim", "512"));
  EXPECT_EQ(gemma.layers[0].head_dim_k, 256);
  EXPECT_EQ(gemma.layers[1].kv_heads, 4);
  EXPECT_EQ(gemma.layers[1].head_dim_k, 512);
  const ModelConfig shared = parse(gqa_config().with("num_kv_shared_layers", "3"));
  EXPECT_EQ(shared.count(AttentionKind::kGqa), 5);
  EXPECT_EQ(shared.count(AttentionKind::kNone), 3);
}

TEST(ModelLayers, KvHeads) {
  EXPECT_EQ(parse(gqa_config().with("num_key_value_heads", "32")).count(AttentionKind::kMha), 8);
  EXPECT_EQ(parse(gqa_config().with("num_key_value_heads", "1")).count(AttentionKind::kMqa), 8);
  // The class of Llama-2 takes the query heads; other classes have other defaults.
  EXPECT_EQ(parse(gqa_config().without("num_key_value_heads")).count(AttentionKind::kMha), 8);
  const JsonText mistral = gqa_config().with("model_type", "\"mistral\"");
  refused(mistral.without("num_key_value_heads"), ErrorCode::kInvalidArgument,
          {"num_key_value_heads is missing"});
  refused(mistral.with("num_key_value_heads", "null"), ErrorCode::kInvalidArgument,
          {"num_key_value_heads is null"});
  refused(gqa_config().with("num_key_value_heads", "5"), ErrorCode::kParse,
          {"num_key_value_heads", "divisor", "32"});
  refused(gqa_config().with("num_key_value_heads", "64"), ErrorCode::kParse, {"divisor"});
}

TEST(ModelLayers, SeparateBlocks) {
  const JsonText nemotron = gqa_config()
                                .with("model_type", "\"nemotron_h\"")
                                .with("num_hidden_layers", "5")
                                .with("hybrid_override_pattern", "\"ME*-M\"")
                                .with("mamba_num_heads", "64")
                                .with("mamba_head_dim", "64")
                                .with("ssm_state_size", "128")
                                .with("n_groups", "8")
                                .with("conv_kernel", "4")
                                .with("mamba_ssm_cache_dtype", "\"float32\"")
                                .with("n_routed_experts", "8")
                                .with("num_experts_per_tok", "2")
                                .with("moe_intermediate_size", "512");
  const ModelConfig model = parse(nemotron);
  EXPECT_EQ(layers_of(model, AttentionKind::kGqa), (std::vector<int>{2}));
  EXPECT_EQ(layers_of(model, AttentionKind::kRecurrent), (std::vector<int>{0, 4}));
  EXPECT_TRUE(model.ffn[1].moe);
  EXPECT_EQ(model.ffn[3].dense_count, 1);
  EXPECT_EQ(model.ffn[0].dense_count, 0);
  EXPECT_FALSE(model.ffn_gated);
  EXPECT_EQ(model.norms_per_layer, 1);
  EXPECT_EQ(model.recurrent->state_bytes(), 64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2);
  const JsonText listed = nemotron.without("hybrid_override_pattern")
                              .without("num_hidden_layers")
                              .with("layers_block_type", R"(["mamba", "moe", "attention"])");
  EXPECT_EQ(parse(listed).num_layers, 3);
  refused(nemotron.with("hybrid_override_pattern", "\"MX\""), ErrorCode::kParse, {"hybrid_override_pattern"});
  refused(nemotron.with("hybrid_override_pattern", "\"M\""), ErrorCode::kParse, {"5 layers"});
  // The MTP module's blocks have a pattern of their own: this one is a layer too long.
  refused(nemotron.with("num_nextn_predict_layers", "1").with("hybrid_override_pattern", "\"ME*-MM\""),
          ErrorCode::kParse, {"5 layers"});
  // Mamba fields without a rule that places the layers are not read as attention everywhere.
  refused(nemotron.without("hybrid_override_pattern"), ErrorCode::kUnsupported, {"ssm_state_size"});
}

TEST(ModelLayers, SearchedArchitectures) {
  const JsonText nas = gqa_config()
                           .with("model_type", "\"nemotron-nas\"")
                           .with("num_hidden_layers", "3")
                           .with("num_key_value_heads", "null")
                           .with("intermediate_size", "null")
                           .with("block_configs", R"([
      {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.625}},
      {"attention": {"no_op": true, "n_heads_in_group": null}, "ffn": {"no_op": true}},
      {"attention": {"n_heads_in_group": 32}, "ffn": {"ffn_mult": 5.25}}])");
  const ModelConfig model = parse(nas);
  EXPECT_EQ(model.layers[0].kv_heads, 4);
  EXPECT_EQ(model.layers[1].kind, AttentionKind::kNone);
  EXPECT_EQ(model.layers[2].kind, AttentionKind::kMqa);
  EXPECT_EQ(model.ffn[0].dense_intermediate_size, 7168);
  EXPECT_EQ(model.ffn[1].dense_count, 0);
  refused(nas.with("num_hidden_layers", "4"), ErrorCode::kParse, {"block_configs", "4 layers"});
  refused(nas.with("block_configs", "[{}, {}, {}]"), ErrorCode::kInvalidArgument,
          {"block_configs[0].attention is missing"});
  // Found by fuzzing: a block of 64 KV heads beside 32 query heads.
  for (const char* heads : {"64", "5"}) {
    const std::string block = std::string(R"({"attention": {"num_key_value_heads": )") + heads +
                              R"(}, "ffn": {"ffn_mult": 2.625}})";
    refused(nas.with("block_configs", "[" + block + ", " + block + ", " + block + "]"), ErrorCode::kParse,
            {"block_configs[0].attention.num_key_value_heads", "a divisor of num_attention_heads (32)"});
  }
}

TEST(ModelLayers, ExpertLayers) {
  const auto experts = [](const JsonText& config) {
    std::vector<int> layers;
    for (const mla::LayerFfn& ffn : parse(config).ffn) {
      if (ffn.moe && !ffn.mtp) layers.push_back(ffn.model_layer);
    }
    return layers;
  };
  EXPECT_EQ(experts(mla_config()), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(experts(mla_config().with("moe_layer_freq", "2")), (std::vector<int>{2}));
  EXPECT_EQ(experts(mla_config().with("moe_layer_freq", "[0, 1, 0, 1]")), (std::vector<int>{1, 3}));
  EXPECT_EQ(experts(mla_config().with("mlp_layer_types", R"(["dense", "sparse", "dense", "sparse"])")),
            (std::vector<int>{1, 3}));
  EXPECT_EQ(experts(mla_config().with("moe_layers_enum", "\"0,2\"")), (std::vector<int>{0, 2}));
  EXPECT_EQ(experts(mla_config().with("decoder_sparse_step", "2").with("mlp_only_layers", "[1]")),
            (std::vector<int>{3}));
  EXPECT_TRUE(experts(gqa_config()).empty());
  refused(mla_config().with("moe_layers_enum", "\"0,9\""), ErrorCode::kParse, {"moe_layers_enum"});
  refused(mla_config().with("mlp_layer_types", R"(["dense"])"), ErrorCode::kParse, {"mlp_layer_types"});
  refused(mla_config().without("num_experts_per_tok"), ErrorCode::kInvalidArgument,
          {"num_experts_per_tok is missing"});
  EXPECT_EQ(parse(mla_config()).moe->shared_intermediate_size, 1024);
}

}  // namespace
