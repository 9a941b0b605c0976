// SPDX-License-Identifier: Apache-2.0
#include "spec/case_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::spec {
namespace {

/// Reads keys and remembers which.
class Reader {
 public:
  Reader(const ShortConfig& config, std::vector<std::string>& used) : config_(config), used_(used) {}

  std::optional<int> get(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const auto found = config_.numbers.find(key);
      if (found == config_.numbers.end() || found->second.empty()) continue;
      used_.emplace_back(key);
      const double value = found->second.front();
      constexpr double kMost = 1 << 30;
      if (!(value >= 0 && value <= kMost)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("config: {} is {}, which is no size", key, value));
      }
      return static_cast<int>(value);
    }
    return std::nullopt;
  }
  int need(std::initializer_list<const char*> keys) {
    if (const std::optional<int> value = get(keys)) return *value;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("config: {} is missing or null", *keys.begin()));
  }
  std::vector<int> list(const char* key) {
    std::vector<int> values;
    const auto found = config_.numbers.find(key);
    if (found == config_.numbers.end()) return values;
    used_.emplace_back(key);
    for (const double value : found->second) {
      if (!(value >= 0 && value <= 1 << 20)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("config: {} holds {}, which is no size", key, value));
      }
      values.push_back(static_cast<int>(value));
    }
    return values;
  }

 private:
  const ShortConfig& config_;
  std::vector<std::string>& used_;
};

void add_ffn(ModelConfig& model, int layer, bool mtp) {
  const bool moe = model.moe && layer >= model.moe->first_dense_layers;
  model.ffn.push_back({.model_layer = layer,
                       .dense_count = moe ? 0 : 1,
                       .dense_intermediate_size = moe ? 0 : model.intermediate_size,
                       .moe = moe,
                       .mtp = mtp});
}

void read_common(ModelConfig& model, Reader& in) {
  model.num_layers = in.need({"num_hidden_layers"});
  constexpr int kMostLayers = 4096;
  if (model.num_layers < 1 || model.num_layers > kMostLayers) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config: num_hidden_layers {} is not in 1..{}", model.num_layers, kMostLayers));
  }
  model.num_heads = in.need({"num_attention_heads"});
  model.num_kv_heads = in.get({"num_key_value_heads"}).value_or(model.num_heads);
  model.hidden_size = in.get({"hidden_size"}).value_or(0);
  model.vocab_size = in.get({"vocab_size"}).value_or(0);
  model.max_position = in.get({"max_position_embeddings"}).value_or(0);
  model.intermediate_size = in.get({"intermediate_size"}).value_or(0);
  model.num_mtp_layers = std::min(in.get({"num_nextn_predict_layers"}).value_or(0), 64);
  model.tie_word_embeddings = in.get({"tie_word_embeddings"}).value_or(0) != 0;
  if (const std::optional<int> experts = in.get({"n_routed_experts", "num_experts", "num_local_experts"})) {
    MoeConfig moe;
    moe.num_experts = *experts;
    moe.num_shared_experts = in.get({"n_shared_experts"}).value_or(0);
    moe.experts_per_token = in.get({"num_experts_per_tok"}).value_or(0);
    moe.moe_intermediate_size = in.get({"moe_intermediate_size"}).value_or(model.intermediate_size);
    moe.shared_intermediate_size = moe.num_shared_experts * moe.moe_intermediate_size;
    moe.first_dense_layers = in.get({"first_k_dense_replace"}).value_or(0);
    model.moe = moe;
  }
  if (const std::vector<int> block = in.list("weight_block_size"); block.size() == 2) {
    model.quantization = "fp8";
    QuantizationConfig quantization;
    quantization.method = quantization.format = "fp8";
    quantization.weight_bits = 8;
    quantization.scale_bits = 32;
    quantization.block_n = block[0];
    quantization.block_k = block[1];
    model.quantization_config = quantization;
  }
}

void read_indexer(ModelConfig& model, Reader& in) {
  const std::optional<int> topk = in.get({"index_topk"});
  if (!topk) return;
  IndexerConfig indexer;
  indexer.topk = *topk;
  indexer.num_heads = in.get({"index_n_heads"}).value_or(0);
  indexer.head_dim = in.get({"index_head_dim"}).value_or(128);
  indexer.key_pool = std::max(1, in.get({"index_kpool"}).value_or(1));
  model.indexer = indexer;
}

/// Kimi-Linear: MLA on some layers (1-based), a recurrent state on the others.
void read_hybrid(ModelConfig& model, Reader& in) {
  const std::vector<int> full = in.list("full_attn_layers");
  if (full.empty()) return;
  in.get({"kda_layers"});
  RecurrentConfig recurrent;
  recurrent.num_k_heads = recurrent.num_v_heads = in.need({"kda_num_heads"});
  recurrent.head_dim_k = recurrent.head_dim_v = in.need({"kda_head_dim"});
  recurrent.conv_kernel = in.get({"short_conv_kernel_size"}).value_or(0);
  recurrent.conv_channels = 3 * recurrent.num_k_heads * recurrent.head_dim_k;
  model.recurrent = recurrent;
  for (LayerCache& layer : model.layers) {
    if (std::find(full.begin(), full.end(), layer.model_layer + 1) != full.end()) continue;
    layer.kind = AttentionKind::kRecurrent;
    layer.state_bytes = recurrent.state_bytes();
  }
}

void read_mla(ModelConfig& model, Reader& in) {
  MlaDims dims;
  dims.num_heads = model.num_heads;
  dims.kv_lora_rank = in.need({"kv_lora_rank"});
  dims.qk_rope_head_dim = in.need({"qk_rope_head_dim"});
  dims.qk_nope_head_dim = in.need({"qk_nope_head_dim"});
  dims.v_head_dim = in.need({"v_head_dim"});
  validate(dims);
  model.mla = dims;
  model.rope.dim = dims.qk_rope_head_dim;
  model.q_lora_rank = in.get({"q_lora_rank"});
  in.get({"head_dim"});
  read_indexer(model, in);
  const int total = model.num_layers + model.num_mtp_layers;
  const int own_indexers = in.get({"indexer_types_full"}).value_or(model.num_layers);
  in.get({"indexer_types_shared"});
  for (int i = 0; i < total; ++i) {
    const bool mtp = i >= model.num_layers;
    model.layers.push_back({.kind = AttentionKind::kMla,
                            .model_layer = i,
                            .q_heads = model.num_heads,
                            .indexer = model.indexer && (mtp || i < own_indexers),
                            .mtp = mtp});
    add_ffn(model, i, mtp);
  }
  read_hybrid(model, in);
}

void read_heads(ModelConfig& model, Reader& in) {
  const std::optional<int> head_dim = in.get({"head_dim"});
  if (!head_dim && (model.num_heads < 1 || model.hidden_size < 1)) in.need({"head_dim"});
  model.head_dim = head_dim.value_or(model.num_heads > 0 ? model.hidden_size / model.num_heads : 0);
  const int value_dim = in.get({"v_head_dim"}).value_or(model.head_dim);
  const int window = in.get({"sliding_window"}).value_or(0);
  const int windowed = window > 0 ? in.get({"sliding_layers"}).value_or(model.num_layers) : 0;
  const std::optional<int> full = in.get({"full_layers"});
  if (full && *full + windowed != model.num_layers) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config: {} sliding and {} full layers are not the {} layers", windowed, *full,
                            model.num_layers));
  }
  LayerCache window_layer{.kv_heads = in.get({"swa_num_key_value_heads"}).value_or(model.num_kv_heads),
                          .head_dim_k = in.get({"swa_head_dim"}).value_or(model.head_dim),
                          .head_dim_v = in.get({"swa_v_head_dim"}).value_or(value_dim),
                          .window = window};
  LayerCache full_layer{.kv_heads = in.get({"num_global_key_value_heads"}).value_or(model.num_kv_heads),
                        .head_dim_k = in.get({"global_head_dim"}).value_or(model.head_dim),
                        .head_dim_v = in.get({"global_head_dim"}).value_or(value_dim)};
  model.k_eq_v = in.get({"attention_k_eq_v"}).value_or(0) != 0;
  for (int i = 0; i < model.num_layers; ++i) {
    LayerCache layer = i < windowed ? window_layer : full_layer;
    layer.kind = layer.kv_heads == model.num_heads ? AttentionKind::kMha
                 : layer.kv_heads == 1             ? AttentionKind::kMqa
                                                   : AttentionKind::kGqa;
    layer.model_layer = i;
    layer.q_heads = model.num_heads;
    model.layers.push_back(layer);
    add_ffn(model, i, false);
  }
}

void read_compressed(ModelConfig& model, Reader& in) {
  CompressedConfig compressed;
  compressed.head_dim = in.need({"head_dim"});
  compressed.rope_head_dim = in.need({"qk_rope_head_dim"});
  compressed.window = in.need({"sliding_window"});
  model.head_dim = compressed.head_dim;
  model.compressed = compressed;
  read_indexer(model, in);
  // Counts include the prediction layers, which have the window alone.
  const int dense = in.need({"compress_ratio_counts.4"});
  const int sparse = in.need({"compress_ratio_counts.128"});
  in.get({"compress_ratio_counts.0"});
  in.get({"q_lora_rank"});
  for (int i = 0; i < model.num_layers; ++i) {
    const int ratio = i < dense ? 4 : i < dense + sparse ? 128 : 0;
    model.layers.push_back({.kind = AttentionKind::kCompressed,
                            .model_layer = i,
                            .q_heads = model.num_heads,
                            .window = compressed.window,
                            .indexer = ratio == 4,
                            .compress_ratio = ratio});
    add_ffn(model, i, false);
  }
}

}  // namespace

ModelConfig model_of(const ShortConfig& config, const std::string& name, std::vector<std::string>& used) {
  ModelConfig model;
  model.name = model.title = name;
  Reader in(config, used);
  read_common(model, in);
  if (config.attention == "mla") {
    read_mla(model, in);
  } else if (config.attention == "gqa" || config.attention == "mha" || config.attention == "mqa") {
    read_heads(model, in);
  } else if (config.attention == "v4-csa") {
    read_compressed(model, in);
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config: attention {} is not known", text::quoted(config.attention)),
                "allowed are mla, gqa, mha, mqa and v4-csa");
  }
  return model;
}

}  // namespace mla::spec
