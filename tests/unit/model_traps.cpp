// SPDX-License-Identifier: Apache-2.0
// Every trap that real configs hold about what a model is (research, A4), each as a small config of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model_reading.hpp"

namespace {

using mla::AttentionKind;
using mla::ErrorCode;
using mla::ModelConfig;

TEST(ModelTraps, PlainMla) {
  const ModelConfig model = parse(mla_config());
  ASSERT_TRUE(model.mla.has_value());
  EXPECT_EQ(*model.mla, (mla::MlaDims{16, 512, 64, 128, 128}));
  EXPECT_EQ(model.count(AttentionKind::kMla), 4);
  EXPECT_EQ(model.count(AttentionKind::kMla, true), 5);
  EXPECT_EQ(model.q_lora_rank, 384);
  EXPECT_TRUE(mla::is_mla(model).yes);
  EXPECT_NE(mla::is_mla(model).reason.find("kv_lora_rank 512"), std::string::npos);
  EXPECT_FALSE(mla::is_sparse(model).yes);
  EXPECT_EQ(note_of(model, "kv_lora_rank").from, "kv_lora_rank");
  EXPECT_EQ(note_of(model, "kv_lora_rank").value, "512");
}

// 1: null is not absent, and neither makes an MLA model GQA.
TEST(ModelTraps, NullRanks) {
  const ModelConfig lite = parse(mla_config().with("q_lora_rank", "null"));
  EXPECT_FALSE(lite.q_lora_rank.has_value());
  EXPECT_NE(note_of(lite, "q_lora_rank").from.find("one q_proj"), std::string::npos);
  refused(mla_config().without("q_lora_rank"), ErrorCode::kInvalidArgument, {"q_lora_rank is missing"});
  refused(mla_config().with("kv_lora_rank", "null"), ErrorCode::kInvalidArgument,
          {"kv_lora_rank is null", "never read as GQA"});
  refused(mla_config().without("kv_lora_rank"), ErrorCode::kInvalidArgument, {"kv_lora_rank is missing"});
  // Nothing but the name says MLA.
  for (const char* key : {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    refused(mla_config().without(key), ErrorCode::kInvalidArgument, {std::string(key) + " is missing"});
    refused(mla_config().with(key, "null"), ErrorCode::kInvalidArgument, {std::string(key) + " is null"});
  }
  const JsonText stripped =
      mla_config().without("kv_lora_rank").without("qk_nope_head_dim").without("qk_rope_head_dim");
  refused(stripped, ErrorCode::kInvalidArgument,
          {"kv_lora_rank is missing", "DeepseekV3ForCausalLM is an MLA model"});
  refused(stripped.without("architectures"), ErrorCode::kInvalidArgument, {"deepseek_v3 is an MLA model"});
  // Nothing but a null key says MLA.
  refused(gqa_config().with("kv_lora_rank", "null"), ErrorCode::kInvalidArgument, {"kv_lora_rank is null"});
  refused(gqa_config().with("model_type", "\"brand_new\"").with("qk_rope_head_dim", "64"),
          ErrorCode::kInvalidArgument, {"kv_lora_rank is missing", "qk_rope_head_dim is there"});
}

// 2: wrappers.
TEST(ModelTraps, NestedLanguageModel) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    const JsonText outer = {{"architectures", R"(["KimiK25ForConditionalGeneration"])"},
                            {"model_type", R"("kimi_k25")"},
                            {"tie_word_embeddings", "true"},
                            {key, mla_config().without("architectures").text()},
                            {"vision_config", "{}"}};
    const ModelConfig model = parse(outer);
    EXPECT_EQ(model.model_type, "deepseek_v3") << key;
    EXPECT_EQ(model.architecture, "KimiK25ForConditionalGeneration");
    EXPECT_TRUE(model.multimodal);
    EXPECT_TRUE(model.tie_word_embeddings);
    EXPECT_EQ(model.mla->kv_lora_rank, 512);
    EXPECT_EQ(note_of(model, "kv_lora_rank").from, std::string(key) + ".kv_lora_rank");
  }
  EXPECT_FALSE(parse(mla_config()).multimodal);
  refused({{"model_type", "\"x\""}, {"text_config", "7"}}, ErrorCode::kParse,
          {"text_config must be an object", "7"});
}

// 3 and 4: widths and heads that an MLA cache does not have.
TEST(ModelTraps, HeadDimAndKvHeadsSayNothingAboutMla) {
  for (const char* width : {"64", "72", "192", "0", "null", "\"any\""}) {
    const ModelConfig model = parse(mla_config().with("head_dim", width));
    EXPECT_EQ(model.mla->latent_width(), 576) << width;
    EXPECT_EQ(model.head_dim, 0);
  }
  for (const char* heads : {"1", "16", "7", "null"}) {
    EXPECT_EQ(parse(mla_config().with("num_key_value_heads", heads)).count(AttentionKind::kMla), 4) << heads;
  }
  EXPECT_NE(note_of(parse(mla_config().with("head_dim", "64")), "head_dim").from.find("not used"),
            std::string::npos);
}

TEST(ModelTraps, HeadDimOfOrdinaryAttention) {
  EXPECT_EQ(parse(gqa_config()).head_dim, 128);
  EXPECT_EQ(note_of(parse(gqa_config()), "head_dim").from, "derived: hidden_size / num_attention_heads");
  // Qwen3-0.6B: 1024 / 16 would be 64.
  const ModelConfig qwen = parse(gqa_config().with("hidden_size", "1024").with("head_dim", "128"));
  EXPECT_EQ(qwen.layers.front().head_dim_k, 128);
  refused(gqa_config().with("hidden_size", "1000"), ErrorCode::kInvalidArgument,
          {"head_dim is missing", "no multiple"});
}

// A class nobody looked at: the field names decide, and the user is told.
TEST(ModelTraps, UnknownClassesAreNamed) {
  EXPECT_TRUE(parse(mla_config()).warnings.empty());
  EXPECT_TRUE(parse(gqa_config()).warnings.empty());
  const ModelConfig latent = parse(
      mla_config().with("model_type", "\"brand_new\"").with("architectures", R"(["BrandNewForCausalLM"])"));
  EXPECT_TRUE(latent.mla.has_value());
  ASSERT_EQ(latent.warnings.size(), 1U);
  EXPECT_NE(latent.warnings[0].find("model_type 'brand_new' is not an MLA class that was looked at"),
            std::string::npos);
  EXPECT_NE(latent.warnings[0].find("kv_lora_rank is there"), std::string::npos);
  const ModelConfig heads = parse(
      gqa_config().with("model_type", "\"brand_new\"").with("architectures", R"(["BrandNewForCausalLM"])"));
  ASSERT_EQ(heads.warnings.size(), 1U);
  EXPECT_NE(heads.warnings[0].find("'brand_new'"), std::string::npos);
  for (const ModelConfig& model : mla::list_models())
    EXPECT_TRUE(model.warnings.empty()) << model.name << ": " << model.warnings[0];
}

TEST(ModelTraps, MoreDenseLayersThanLayers) {
  refused(mla_config().with("first_k_dense_replace", "99"), ErrorCode::kParse,
          {"first_k_dense_replace must be a whole number from 0 to 4", "99"});
  EXPECT_EQ(parse(mla_config().with("first_k_dense_replace", "4")).moe->first_dense_layers, 4);
}

// 5: value widths.
TEST(ModelTraps, ValueWidth) {
  EXPECT_EQ(parse(mla_config().with("qk_nope_head_dim", "192").with("v_head_dim", "256")).mla->v_head_dim,
            256);
  const JsonText minicpm = mla_config()
                               .with("model_type", "\"minicpm3\"")
                               .with("architectures", R"(["MiniCPM3ForCausalLM"])")
                               .without("v_head_dim");
  const ModelConfig model = parse(minicpm);
  EXPECT_EQ(model.mla->v_head_dim, 64);
  EXPECT_NE(note_of(model, "v_head_dim").from.find("MiniCPM3Config"), std::string::npos);
  EXPECT_EQ(model.rope_layout, mla::RopeLayout::kHalfSplit);
  EXPECT_TRUE(model.tie_word_embeddings);
}

// 6: no rotary part, and one that is stored but not rotated.
TEST(ModelTraps, RotaryPart) {
  const ModelConfig none = parse(mla_config().with("qk_rope_head_dim", "0"));
  EXPECT_EQ(none.mla->latent_width(), 512);
  EXPECT_EQ(none.rope.dim, 0);
  const ModelConfig stored = parse(mla_config().with("mla_use_nope", "true"));
  EXPECT_TRUE(stored.mla_use_nope);
  EXPECT_EQ(stored.mla->latent_width(), 576);
  refused(mla_config().with("qk_rope_head_dim", "-64"), ErrorCode::kParse, {"qk_rope_head_dim", "-64"});
  refused(mla_config().with("qk_rope_head_dim", "63"), ErrorCode::kInvalidArgument, {"63"});
}

JsonText sparse_config() {
  return mla_config()
      .with("model_type", "\"glm_moe_dsa\"")
      .with("index_topk", "2048")
      .with("index_n_heads", "32")
      .with("index_head_dim", "128");
}

int own_indexers(const ModelConfig& model, bool mtp) {
  return static_cast<int>(
      std::count_if(model.layers.begin(), model.layers.end(),
                    [&](const mla::LayerCache& layer) { return layer.indexer && layer.mtp == mtp; }));
}

// 9: indexers, and their sharing.
TEST(ModelTraps, Indexers) {
  const ModelConfig every = parse(sparse_config());
  EXPECT_EQ(own_indexers(every, false), 4);
  EXPECT_EQ(own_indexers(every, true), 1);
  EXPECT_TRUE(mla::is_sparse(every).yes);
  EXPECT_NE(mla::is_sparse(every).reason.find("2048"), std::string::npos);
  EXPECT_EQ(
      own_indexers(parse(sparse_config().with("indexer_types", R"(["full", "shared", "shared", "full"])")),
                   false),
      2);
  // The first 3, then every 4th: 0 1 2 6 10 of 12.
  const JsonText frequency = sparse_config()
                                 .with("num_hidden_layers", "12")
                                 .with("index_topk_freq", "4")
                                 .with("index_skip_topk_offset", "3");
  EXPECT_EQ(own_indexers(parse(frequency), false), 5);
  EXPECT_TRUE(parse(frequency).layers[6].indexer);
  EXPECT_EQ(parse(sparse_config().with("index_kpool", "4")).indexer->key_pool, 4);
  EXPECT_FALSE(parse(mla_config().with("index_topk", "null")).indexer.has_value());
  refused(sparse_config().without("index_head_dim"), ErrorCode::kInvalidArgument,
          {"index_head_dim is missing"});
  refused(sparse_config().with("indexer_types", R"(["full"])"), ErrorCode::kParse, {"indexer_types"});
  refused(sparse_config().with("indexer_types", R"(["full", "none", "full", "full"])"), ErrorCode::kParse,
          {"'shared'"});
  refused(sparse_config().with("index_topk_pattern", R"("FSSS")"), ErrorCode::kUnsupported,
          {"index_topk_pattern"});
}

// 10: other names for the same facts.
TEST(ModelTraps, OpenPanguNames) {
  const ModelConfig model = parse({{"model_type", R"("pangu_ultra_moe")"},
                                   {"num_hidden_layers", "4"},
                                   {"hidden_size", "1024"},
                                   {"num_attention_heads", "16"},
                                   {"intermediate_size", "4096"},
                                   {"vocab_size", "32000"},
                                   {"attention_q_lora_dim", "384"},
                                   {"attention_kv_lora_dim", "512"},
                                   {"attention_qk_dim", "128"},
                                   {"attention_qk_rope_dim", "64"},
                                   {"attention_v_dim", "96"},
                                   {"num_mtp_layers", "1"},
                                   {"num_dense_layers", "2"},
                                   {"num_routed_experts", "16"},
                                   {"num_shared_experts", "1"},
                                   {"num_experts_per_tok", "4"},
                                   {"moe_intermediate_size", "256"},
                                   {"sandwich_norm", "true"}});
  EXPECT_EQ(*model.mla, (mla::MlaDims{16, 512, 64, 128, 96}));
  EXPECT_EQ(model.q_lora_rank, 384);
  EXPECT_EQ(model.num_mtp_layers, 1);
  EXPECT_EQ(model.moe->first_dense_layers, 2);
  EXPECT_EQ(model.moe->num_experts, 16);
  EXPECT_EQ(model.norms_per_layer, 4);
  EXPECT_EQ(note_of(model, "kv_lora_rank").from, "attention_kv_lora_dim");
}

TEST(ModelTraps, KimiNames) {
  const ModelConfig model = parse(mla_config()
                                      .without("n_routed_experts")
                                      .without("n_shared_experts")
                                      .without("num_experts_per_tok")
                                      .with("num_experts", "64")
                                      .with("num_shared_experts", "1")
                                      .with("num_experts_per_token", "8")
                                      .with("routed_expert_hidden_size", "512"));
  EXPECT_EQ(model.moe->num_experts, 64);
  EXPECT_EQ(model.moe->experts_per_token, 8);
  EXPECT_EQ(model.moe->latent_size, 512);
}

TEST(ModelTraps, MistralParams) {
  const JsonText params = {{"dim", "1024"},
                           {"n_layers", "4"},
                           {"n_heads", "16"},
                           {"n_kv_heads", "16"},
                           {"head_dim", "192"},
                           {"hidden_dim", "4096"},
                           {"vocab_size", "32000"},
                           {"max_position_embeddings", "294912"},
                           {"max_seq_len", "262144"},
                           {"tied_embeddings", "true"},
                           {"q_lora_rank", "384"},
                           {"kv_lora_rank", "512"},
                           {"qk_nope_head_dim", "128"},
                           {"qk_rope_head_dim", "64"},
                           {"v_head_dim", "128"},
                           {"moe", R"({"num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 1,
          "expert_hidden_dim": 512, "first_k_dense_replace": 1, "route_every_n": 1})"},
                           {"yarn", R"({"factor": 36, "original_max_position_embeddings": 8192, "alpha": 1,
                                        "beta": 32, "apply_scale": false})"}};
  const ModelConfig model = parse(params);
  EXPECT_EQ(model.hidden_size, 1024);
  EXPECT_EQ(model.max_position, 294912);
  EXPECT_EQ(model.mla->latent_width(), 576);
  EXPECT_EQ(model.moe->num_experts, 8);
  EXPECT_EQ(model.moe->first_dense_layers, 1);
  EXPECT_EQ(model.rope_type, "yarn");
  EXPECT_DOUBLE_EQ(model.rope.factor, 36);
  EXPECT_EQ(model.rope.attention_factor, 1.0);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_EQ(model.architecture, "MistralLarge3ForCausalLM");
  const JsonText plain = JsonText{{"dim", "4096"},         {"n_layers", "2"},         {"n_heads", "32"},
                                  {"n_kv_heads", "8"},     {"head_dim", "128"},       {"hidden_dim", "14336"},
                                  {"vocab_size", "32000"}, {"sliding_window", "4096"}};
  EXPECT_EQ(parse(plain).layers.front().kind, AttentionKind::kGqa);
  EXPECT_EQ(parse(plain).layers.front().window, 4096);
}

TEST(ModelTraps, TwoNamesMustAgree) {
  EXPECT_EQ(parse(mla_config().with("num_experts", "64")).moe->num_experts, 64);
  refused(mla_config().with("num_experts", "32"), ErrorCode::kInvalidArgument,
          {"n_routed_experts is 64", "num_experts is 32"});
}

// 11: the model type is no key.
TEST(ModelTraps, ModelTypeIsNoKey) {
  const ModelConfig renamed = parse(mla_config()
                                        .with("model_type", "\"deepseek_ref\"")
                                        .with("layer_types",
                                              R"(["deepseek_sparse_attention", "deepseek_sparse_attention",
 "deepseek_sparse_attention", "deepseek_sparse_attention"])"));
  EXPECT_EQ(renamed.count(AttentionKind::kMla), 4);
  EXPECT_FALSE(renamed.indexer.has_value());
  EXPECT_EQ(parse(mla_config().without("model_type").without("architectures")).count(AttentionKind::kMla), 4);
  const ModelConfig unknown =
      parse(gqa_config().with("model_type", "\"brand_new\"").with("architectures", R"(["NewForCausalLM"])"));
  EXPECT_EQ(unknown.count(AttentionKind::kGqa), 8);
  EXPECT_FALSE(mla::is_mla(unknown).yes);
  // A DeepSeek-V2 class that states it uses ordinary attention (VL2-tiny).
  const ModelConfig stated =
      parse(mla_config().with("use_mla", "false").with("kv_lora_rank", "null").with("v_head_dim", "0"));
  EXPECT_EQ(stated.count(AttentionKind::kMha), 4);
  EXPECT_NE(mla::is_mla(stated).reason.find("use_mla is false"), std::string::npos);
}

JsonText v4_config() {
  return {{"architectures", R"(["DeepseekV4ForCausalLM"])"},
          {"model_type", R"("deepseek_v4")"},
          {"num_hidden_layers", "4"},
          {"hidden_size", "1024"},
          {"num_attention_heads", "16"},
          {"num_key_value_heads", "1"},
          {"head_dim", "512"},
          {"qk_rope_head_dim", "64"},
          {"q_lora_rank", "256"},
          {"o_lora_rank", "256"},
          {"o_groups", "4"},
          {"vocab_size", "32000"},
          {"max_position_embeddings", "65536"},
          {"sliding_window", "128"},
          {"compress_ratios", "[0, 4, 128, 4, 0]"},
          {"num_nextn_predict_layers", "1"},
          {"index_topk", "512"},
          {"index_n_heads", "8"},
          {"index_head_dim", "128"},
          {"n_routed_experts", "8"},
          {"num_experts_per_tok", "2"},
          {"moe_intermediate_size", "256"}};
}

// 12: DeepSeek-V4 is neither MLA nor GQA.
TEST(ModelTraps, CompressedCache) {
  const ModelConfig model = parse(v4_config());
  EXPECT_FALSE(model.mla.has_value());
  EXPECT_FALSE(mla::is_mla(model).yes);
  EXPECT_TRUE(mla::is_sparse(model).yes);
  EXPECT_EQ(model.count(AttentionKind::kCompressed), 4);
  EXPECT_EQ(model.layers[1].compress_ratio, 4);
  EXPECT_TRUE(model.layers[1].indexer);
  EXPECT_FALSE(model.layers[2].indexer);
  EXPECT_TRUE(model.layers[4].mtp);
  EXPECT_EQ(model.layers[0].window, 128);
  EXPECT_EQ(model.compressed->o_groups, 4);
  refused(v4_config().without("compress_ratios"), ErrorCode::kInvalidArgument,
          {"compress_ratios is missing"});
  refused(v4_config().with("compress_ratios", "[4]"), ErrorCode::kParse, {"compress_ratios", "4 layers"});
  refused(v4_config().without("sliding_window"), ErrorCode::kInvalidArgument, {"sliding_window is missing"});
  EXPECT_EQ(parse(v4_config().with("model_type", "\"deepseek_ref\"")).count(AttentionKind::kCompressed), 4);
}

TEST(ModelTraps, Rope) {
  const ModelConfig yarn = parse(
      mla_config()
          .with("rope_theta", "50000")
          .with("rope_scaling",
                R"({"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "beta_fast": 1.0,
          "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.5, "attention_factor": 1.25})"));
  EXPECT_TRUE(yarn.rope.yarn);
  EXPECT_DOUBLE_EQ(yarn.rope.theta, 50000);
  EXPECT_DOUBLE_EQ(yarn.rope.factor, 32);
  EXPECT_DOUBLE_EQ(yarn.rope.beta_fast, 1);
  EXPECT_EQ(yarn.rope.mscale, 0.707);
  EXPECT_EQ(yarn.rope.mscale_all_dim, 0.5);
  EXPECT_EQ(yarn.rope.attention_factor, 1.25);
  EXPECT_EQ(yarn.rope.dim, 64);
  EXPECT_EQ(yarn.rope_layout, mla::RopeLayout::kInterleaved);
  const ModelConfig five =
      parse(mla_config().with("rope_parameters", R"({"rope_type": "default", "rope_theta": 8000000})"));
  EXPECT_DOUBLE_EQ(five.rope.theta, 8e6);
  EXPECT_FALSE(five.rope.yarn);
  EXPECT_EQ(parse(mla_config().with("rope_interleave", "false")).rope_layout, mla::RopeLayout::kHalfSplit);
  EXPECT_EQ(parse(gqa_config().with("rope_theta", "[5000000.0, 10000.0]")).rope.theta, 5e6);
  EXPECT_EQ(
      parse(gqa_config().with("rope_parameters",
                              R"({"full_attention": {"rope_theta": 7.0, "rope_type": "proportional"}})"))
          .rope_type,
      "proportional");
  refused(mla_config().with("rope_scaling", R"({"type": "yarn"})"), ErrorCode::kInvalidArgument,
          {"rope_scaling.factor is missing"});
  refused(mla_config().with("rope_scaling", R"({"type": "yarn", "factor": "40"})"), ErrorCode::kParse,
          {"rope_scaling.factor", "'40'"});
  refused(mla_config().with("rope_scaling", R"({"type": "yarn", "factor": NaN})"), ErrorCode::kParse,
          {"factor", "NaN"});
  refused(mla_config().with("rope_theta", "[]"), ErrorCode::kParse, {"rope_theta"});
}

TEST(ModelTraps, OtherKindsOfModel) {
  refused(gqa_config().with("is_encoder_decoder", "true"), ErrorCode::kUnsupported, {"encoder-decoder"});
  refused(gqa_config().with("cross_attention_layers", "[3]"), ErrorCode::kUnsupported,
          {"cross_attention_layers"});
  refused(gqa_config().with("swa_layers", "[1]"), ErrorCode::kUnsupported, {"swa_layers"});
}

}  // namespace
