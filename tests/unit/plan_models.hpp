// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "expect_error.hpp"
#include "mla/capacity.hpp"
#include "mla/model.hpp"

/// Models built by hand from the published shapes, so that planner tests stand on numbers typed here and not
/// on the config reader.
namespace mla::test {

inline void add_layer(ModelConfig& model, LayerCache layer, bool moe, int dense_size, bool mtp = false) {
  layer.model_layer = static_cast<int>(model.ffn.size());
  layer.mtp = mtp;
  model.layers.push_back(layer);
  model.ffn.push_back({.model_layer = layer.model_layer,
                       .dense_count = moe ? 0 : 1,
                       .dense_intermediate_size = moe ? 0 : dense_size,
                       .moe = moe,
                       .mtp = mtp});
}

struct DeepSeekShape {
  const char* name;
  int layers, heads, hidden, q_lora;  ///< q_lora 0: a single q_proj
  int dense_layers, experts, shared, moe_size, dense_size, vocab;
  std::int64_t positions;
  int mtp = 0;
};

inline ModelConfig deepseek_like(const DeepSeekShape& shape) {
  ModelConfig model;
  model.name = model.title = shape.name;
  model.num_layers = shape.layers;
  model.num_mtp_layers = shape.mtp;
  model.hidden_size = shape.hidden;
  model.num_heads = model.num_kv_heads = shape.heads;
  model.intermediate_size = shape.dense_size;
  model.vocab_size = shape.vocab;
  model.max_position = shape.positions;
  model.mla = MlaDims{.num_heads = shape.heads};
  if (shape.q_lora > 0) model.q_lora_rank = shape.q_lora;
  model.moe = MoeConfig{.num_experts = shape.experts,
                        .num_shared_experts = shape.shared,
                        .experts_per_token = 8,
                        .moe_intermediate_size = shape.moe_size,
                        .shared_intermediate_size = shape.shared * shape.moe_size,
                        .first_dense_layers = shape.dense_layers};
  for (int i = 0; i < shape.layers + shape.mtp; ++i) {
    add_layer(model, {.kind = AttentionKind::kMla, .q_heads = shape.heads}, i >= shape.dense_layers,
              shape.dense_size, i >= shape.layers);
  }
  return model;
}

inline ModelConfig deepseek_v3() {
  return deepseek_like({"deepseek-v3", 61, 128, 7168, 1536, 3, 256, 1, 2048, 18432, 129280, 163840, 1});
}
inline ModelConfig kimi_k2() {
  return deepseek_like({"kimi-k2", 61, 64, 7168, 1536, 1, 384, 1, 2048, 18432, 163840, 262144});
}
inline ModelConfig deepseek_v2_lite() {
  return deepseek_like({"deepseek-v2-lite", 27, 16, 2048, 0, 1, 64, 2, 1408, 10944, 102400, 163840});
}

/// V3.2: an indexer on every layer.
inline ModelConfig deepseek_v32() {
  ModelConfig model = deepseek_v3();
  model.name = model.title = "deepseek-v3.2";
  model.indexer = IndexerConfig{.topk = 2048, .num_heads = 64, .head_dim = 128};
  for (LayerCache& layer : model.layers) layer.indexer = true;
  return model;
}

/// GLM-5.2: 21 of 78 layers have an indexer of their own, and the prediction layer.
inline ModelConfig glm_52() {
  ModelConfig model =
      deepseek_like({"glm-5.2", 78, 64, 6144, 2048, 3, 256, 1, 2048, 12288, 154880, 1048576, 1});
  model.mla->qk_nope_head_dim = 192;
  model.mla->v_head_dim = 256;
  model.indexer = IndexerConfig{.topk = 2048, .num_heads = 32, .head_dim = 128};
  for (int i = 0; i < 21; ++i) model.layers[static_cast<std::size_t>(i)].indexer = true;
  model.layers.back().indexer = true;
  return model;
}

struct HeadsShape {
  const char* name;
  int layers, heads, kv_heads, head_dim, hidden, dense_size, vocab;
  std::int64_t positions;
};

inline ModelConfig heads_model(const HeadsShape& shape) {
  ModelConfig model;
  model.name = model.title = shape.name;
  model.num_layers = shape.layers;
  model.hidden_size = shape.hidden;
  model.num_heads = shape.heads;
  model.num_kv_heads = shape.kv_heads;
  model.head_dim = shape.head_dim;
  model.intermediate_size = shape.dense_size;
  model.vocab_size = shape.vocab;
  model.max_position = shape.positions;
  const AttentionKind kind = shape.kv_heads == shape.heads ? AttentionKind::kMha : AttentionKind::kGqa;
  for (int i = 0; i < shape.layers; ++i) {
    add_layer(model,
              {.kind = kind,
               .q_heads = shape.heads,
               .kv_heads = shape.kv_heads,
               .head_dim_k = shape.head_dim,
               .head_dim_v = shape.head_dim},
              false, shape.dense_size);
  }
  return model;
}

inline ModelConfig llama_31_8b() {
  return heads_model({"llama-3.1-8b", 32, 32, 8, 128, 4096, 14336, 128256, 131072});
}
inline ModelConfig llama_31_70b() {
  return heads_model({"llama-3.1-70b", 80, 64, 8, 128, 8192, 28672, 128256, 131072});
}

/// Gemma-4-31B: five window layers of 16 heads x 256, then a full one of 4 x 512, ten times.
inline ModelConfig gemma_4_31b() {
  ModelConfig model = heads_model({"gemma-4-31b", 60, 32, 16, 256, 5376, 21504, 262144, 262144});
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    LayerCache& layer = model.layers[i];
    if (i % 6 == 5) {
      layer.kv_heads = 4;
      layer.head_dim_k = layer.head_dim_v = 512;
    } else {
      layer.window = 1024;
    }
  }
  return model;
}

/// Gemma-3-27B: 52 window layers and 10 full ones.
inline ModelConfig gemma_3_27b() {
  ModelConfig model = heads_model({"gemma-3-27b", 62, 32, 16, 128, 5376, 21504, 262144, 131072});
  for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].window = i % 6 == 5 ? 0 : 1024;
  return model;
}

/// Kimi-Linear-48B: 7 MLA layers (1-based 4, 8, 12, 16, 20, 24, 27) among 20 recurrent ones.
inline ModelConfig kimi_linear() {
  ModelConfig model = deepseek_like({"kimi-linear", 27, 32, 2304, 0, 1, 256, 1, 1024, 9216, 163840, 1048576});
  model.recurrent = RecurrentConfig{.kind = RecurrentKind::kKda,
                                    .num_k_heads = 32,
                                    .num_v_heads = 32,
                                    .head_dim_k = 128,
                                    .head_dim_v = 128,
                                    .conv_channels = 3 * 32 * 128,
                                    .conv_kernel = 4};
  for (LayerCache& layer : model.layers) {
    const int number = layer.model_layer + 1;
    if (number % 4 == 0 || number == 27) continue;
    layer.kind = AttentionKind::kRecurrent;
    layer.state_bytes = model.recurrent->state_bytes();
  }
  return model;
}

/// DeepSeek-V4-Flash: 21 layers of ratio 4 with an indexer, 20 of ratio 128, 2 with the window alone.
inline ModelConfig deepseek_v4_flash() {
  ModelConfig model;
  model.name = model.title = "deepseek-v4-flash";
  model.num_layers = 43;
  model.hidden_size = 4096;
  model.num_heads = 64;
  model.num_kv_heads = 1;
  model.head_dim = 512;
  model.vocab_size = 129280;
  model.max_position = 1048576;
  model.q_lora_rank = 1024;
  model.indexer = IndexerConfig{.topk = 512, .num_heads = 64, .head_dim = 128};
  model.compressed = CompressedConfig{
      .head_dim = 512, .rope_head_dim = 64, .window = 128, .o_lora_rank = 1024, .o_groups = 8};
  model.moe = MoeConfig{.num_experts = 256,
                        .num_shared_experts = 1,
                        .experts_per_token = 6,
                        .moe_intermediate_size = 2048,
                        .shared_intermediate_size = 2048};
  for (int i = 0; i < 43; ++i) {
    const int ratio = i < 2 ? 0 : i % 2 == 0 ? 4 : 128;
    add_layer(model,
              {.kind = AttentionKind::kCompressed,
               .q_heads = 64,
               .window = 128,
               .indexer = ratio == 4,
               .compress_ratio = ratio},
              true, 0);
  }
  return model;
}

/// A request with a cache budget as an engine logs it, and neither weights nor runtime in the way.
inline capacity::PlanRequest logged_budget(const char* engine, std::int64_t bytes, std::int64_t context) {
  capacity::PlanRequest request;
  request.gpu_name = "any";
  request.gpu_memory_bytes = std::int64_t{1} << 40;
  request.engine = capacity::find_engine(engine);
  request.cache = capacity::find_kv_format("bf16");
  request.cache_bytes = {bytes};
  request.context = context;
  return request;
}

inline constexpr std::int64_t kH200 = 150119383040;  // bytes: 139.81 GiB

inline capacity::PlanRequest on_h200(const capacity::Layout& layout, std::int64_t context) {
  capacity::PlanRequest request;
  request.gpu_name = "h200";
  request.gpu_memory_bytes = kH200;
  request.layout = layout;
  request.engine = capacity::find_engine("vllm");
  request.cache = capacity::find_kv_format("bf16");
  request.weights = capacity::uniform_scheme(capacity::find_weight_format("fp8"));
  request.context = context;
  return request;
}

/// Expects a kInvalidArgument whose sentence holds each of `parts`.
template <class Call>
void refused(const Call& call, const std::vector<std::string_view>& parts) {
  expect_error(call, ErrorCode::kInvalidArgument, parts);
}

inline constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
inline std::int64_t gib(double value) {
  return static_cast<std::int64_t>(value * kGiB);
}

}  // namespace mla::test
