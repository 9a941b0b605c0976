// SPDX-License-Identifier: Apache-2.0
#include "plan/weight_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

using Parts = std::vector<WeightPart>;

void matrix(Parts& parts, std::string_view key, std::string_view title, Cut cut, std::int64_t rows,
            std::int64_t cols) {
  parts.push_back({.key = key, .title = title, .cut = cut, .rows = rows, .cols = cols});
}

/// Norm weights, biases, gates of one element a head: bf16, on every rank.
void vector(Parts& parts, std::string_view key, std::string_view title, std::int64_t elements) {
  if (elements > 0)
    parts.push_back({.key = key, .title = title, .role = Role::kVector, .rows = 1, .cols = elements});
}

void add_indexer(Parts& parts, const ModelConfig& model, std::int64_t query_width) {
  if (!model.indexer) return;
  const IndexerConfig& indexer = *model.indexer;
  const std::int64_t hidden = model.hidden_size;
  matrix(parts, "attention.index_q", "indexer queries", Cut::kWhole,
         std::int64_t{indexer.num_heads} * indexer.head_dim, query_width);
  matrix(parts, "attention.index_k", "indexer keys", Cut::kWhole, indexer.head_dim, hidden);
  parts.push_back({.key = "attention.index_weights",
                   .title = "indexer head weights",
                   .role = Role::kRouter,
                   .rows = indexer.num_heads,
                   .cols = hidden});
  vector(parts, "norms.index_k", "indexer key norm", std::int64_t{2} * indexer.head_dim);
}

void add_mla(Parts& parts, const ModelConfig& model, const LayerCache& layer) {
  const MlaDims& dims = *model.mla;
  const std::int64_t heads = dims.num_heads;
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t latent = dims.kv_lora_rank;
  if (model.q_lora_rank) {
    matrix(parts, "attention.q_a", "q_a: hidden to latent query", Cut::kWhole, *model.q_lora_rank, hidden);
    matrix(parts, "attention.q_b", "q_b: latent query to heads", Cut::kTensor, heads * dims.head_width(),
           *model.q_lora_rank);
  } else {
    matrix(parts, "attention.q", "q: hidden to heads", Cut::kTensor, heads * dims.head_width(), hidden);
  }
  matrix(parts, "attention.kv_a", "kv_a: hidden to latent and rope key", Cut::kWhole, dims.latent_width(),
         hidden);
  matrix(parts, "attention.kv_b", "kv_b: latent to K and V heads", Cut::kTensor,
         heads * (dims.qk_nope_head_dim + dims.v_head_dim), latent);
  matrix(parts, "attention.o", "o: heads to hidden", Cut::kTensor, hidden, heads * dims.v_head_dim);
  if (model.attention_gate) {
    matrix(parts, "attention.gate", "output gate", Cut::kTensor, heads * dims.v_head_dim, hidden);
  }
  vector(parts, "norms.latent", "norms of the latents", model.q_lora_rank.value_or(0) + latent);
  if (model.attention_bias) {
    vector(parts, "norms.attention_bias", "attention biases",
           model.q_lora_rank.value_or(0) + dims.latent_width() + hidden);
  }
  if (layer.indexer) add_indexer(parts, model, model.q_lora_rank.value_or(model.hidden_size));
}

void add_heads(Parts& parts, const ModelConfig& model, const LayerCache& layer) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t q_heads = layer.q_heads > 0 ? layer.q_heads : model.num_heads;
  const std::int64_t q_width = q_heads * layer.head_dim_k;
  const std::int64_t k_width = std::int64_t{layer.kv_heads} * layer.head_dim_k;
  const std::int64_t v_width = std::int64_t{layer.kv_heads} * layer.head_dim_v;
  matrix(parts, "attention.q", "q: hidden to heads", Cut::kTensor, q_width * (model.attention_gate ? 2 : 1),
         hidden);
  matrix(parts, "attention.k", "k: hidden to KV heads", Cut::kKvHeads, k_width, hidden);
  parts.back().kv_heads = layer.kv_heads;
  if (!(model.k_eq_v && layer.window == 0)) {
    matrix(parts, "attention.v", "v: hidden to KV heads", Cut::kKvHeads, v_width, hidden);
    parts.back().kv_heads = layer.kv_heads;
  }
  matrix(parts, "attention.o", "o: heads to hidden", Cut::kTensor, hidden, q_heads * layer.head_dim_v);
  if (model.qk_norm == QkNorm::kPerHead) {
    vector(parts, "norms.qk", "norms of q and k", std::int64_t{2} * layer.head_dim_k);
  } else if (model.qk_norm == QkNorm::kPerLayer) {
    vector(parts, "norms.qk", "norms of q and k", q_width + k_width);
  }
  if (model.qkv_bias || model.attention_bias) {
    vector(parts, "norms.attention_bias", "attention biases",
           q_width + k_width + v_width + (model.attention_bias ? hidden : 0));
  }
  if (model.attention_sinks) vector(parts, "norms.sinks", "sink logits", q_heads);
}

void add_compressed(Parts& parts, const ModelConfig& model, const LayerCache& layer) {
  const CompressedConfig& config = *model.compressed;
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t width = config.head_dim;
  const std::int64_t heads_width = model.num_heads * width;
  const std::int64_t query = model.q_lora_rank.value_or(model.hidden_size);
  if (model.q_lora_rank)
    matrix(parts, "attention.q_a", "q_a: hidden to latent query", Cut::kWhole, query, hidden);
  matrix(parts, "attention.q_b", "q_b: latent query to heads", Cut::kTensor, heads_width, query);
  matrix(parts, "attention.kv", "kv: hidden to the one KV head", Cut::kWhole, width, hidden);
  if (config.o_groups > 0 && config.o_lora_rank > 0) {
    matrix(parts, "attention.o_a", "o_a: head groups to their latents", Cut::kTensor, config.o_lora_rank,
           heads_width / config.o_groups);
    parts.back().copies = config.o_groups;
    matrix(parts, "attention.o_b", "o_b: latents to hidden", Cut::kTensor, hidden,
           std::int64_t{config.o_groups} * config.o_lora_rank);
  } else {
    matrix(parts, "attention.o", "o: heads to hidden", Cut::kTensor, hidden, heads_width);
  }
  const std::int64_t copies = layer.compress_ratio == 4 ? 2 : 1;
  if (layer.compress_ratio > 0) {
    matrix(parts, "attention.compressor", "compressor: entries and their gates", Cut::kWhole,
           2 * copies * width, hidden);
  }
  if (layer.indexer && model.indexer) {
    add_indexer(parts, model, query);
    // index keys of V4 come from a compressor of their own, entries and gates, instead of one projection
    for (WeightPart& part : parts) {
      if (part.key == "attention.index_k") part.rows = 2 * copies * model.indexer->head_dim;
    }
  }
  if (model.attention_sinks) vector(parts, "norms.sinks", "sink logits", model.num_heads);
}

void add_recurrent(Parts& parts, const ModelConfig& model) {
  if (!model.recurrent) return;
  const RecurrentConfig& config = *model.recurrent;
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t key = std::int64_t{config.num_k_heads} * config.head_dim_k;
  const std::int64_t value = std::int64_t{config.num_v_heads} * config.head_dim_v;
  const auto in = [&](std::int64_t rows) {
    matrix(parts, "attention.recurrent_in", "recurrent layers, in", Cut::kTensor, rows, hidden);
  };
  switch (config.kind) {
    case RecurrentKind::kKda:
      in(2 * key + value);
      matrix(parts, "attention.recurrent_decay", "recurrent layers, decay", Cut::kWhole, config.head_dim_v,
             hidden + key);
      if (config.full_rank_gate) {
        matrix(parts, "attention.recurrent_gate", "recurrent layers, gate", Cut::kTensor, value, hidden);
      } else {
        matrix(parts, "attention.recurrent_gate", "recurrent layers, gate", Cut::kWhole, config.head_dim_v,
               hidden + value);
      }
      matrix(parts, "attention.recurrent_beta", "recurrent layers, beta", Cut::kTensor, config.num_v_heads,
             hidden);
      break;
    case RecurrentKind::kGatedDelta:
      in(2 * key + 2 * value + 2 * std::int64_t{config.num_v_heads});
      break;
    case RecurrentKind::kMamba1: {
      const std::int64_t step_rank = ceil_div(hidden, 16);
      in(2 * value);
      matrix(parts, "attention.recurrent_x", "recurrent layers, B, C and step", Cut::kTensor,
             2 * step_rank + 3 * std::int64_t{config.head_dim_k}, value);
      break;
    }
    case RecurrentKind::kMamba2:
      in(2 * value + 2 * key + config.num_v_heads);
      break;
    case RecurrentKind::kLightning:
      in(2 * key + 2 * value);
      break;
  }
  matrix(parts, "attention.recurrent_out", "recurrent layers, out", Cut::kTensor, hidden, value);
  vector(
      parts, "norms.recurrent", "convolutions, decays and norms",
      std::int64_t{config.conv_channels} * config.conv_kernel + 2 * std::int64_t{config.num_v_heads} + value);
}

void add_mixer(Parts& parts, const ModelConfig& model, const LayerCache& layer) {
  switch (layer.kind) {
    case AttentionKind::kMla:
      if (model.mla) add_mla(parts, model, layer);
      break;
    case AttentionKind::kMha:
    case AttentionKind::kGqa:
    case AttentionKind::kMqa:
      add_heads(parts, model, layer);
      break;
    case AttentionKind::kCompressed:
      if (model.compressed) add_compressed(parts, model, layer);
      break;
    case AttentionKind::kRecurrent:
      add_recurrent(parts, model);
      break;
    case AttentionKind::kNone:
      break;
  }
}

void add_ffn(Parts& parts, const ModelConfig& model, const LayerFfn& ffn) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t matrices = model.ffn_gated ? 3 : 2;
  if (ffn.dense_count > 0) {
    parts.push_back({.key = "dense.ffn",
                     .title = "dense FFN",
                     .role = Role::kDense,
                     .cut = Cut::kTensor,
                     .copies = ffn.dense_count * matrices,
                     .rows = ffn.dense_intermediate_size,
                     .cols = hidden});
    if (model.mlp_bias) {
      vector(parts, "norms.ffn_bias", "FFN biases",
             ffn.dense_count * ((matrices - 1) * std::int64_t{ffn.dense_intermediate_size} + hidden));
    }
  }
  if (!ffn.moe || !model.moe) return;
  const MoeConfig& moe = *model.moe;
  const std::int64_t expert_hidden = moe.latent_size > 0 ? moe.latent_size : hidden;
  parts.push_back({.key = "experts.router",
                   .title = "router gate",
                   .role = Role::kRouter,
                   .rows = std::int64_t{moe.num_experts} + moe.zero_experts,
                   .cols = hidden});
  if (moe.router_bias)
    vector(parts, "norms.router_bias", "router biases", moe.num_experts + moe.zero_experts);
  if (moe.latent_size > 0) {
    parts.push_back({.key = "experts.latent",
                     .title = "projections to and from the experts' width",
                     .role = Role::kShared,
                     .copies = 2,
                     .rows = expert_hidden,
                     .cols = hidden});
  }
  parts.push_back({.key = "experts.routed",
                   .title = "routed experts",
                   .role = Role::kExperts,
                   .cut = Cut::kExperts,
                   .copies = std::int64_t{moe.num_experts} * matrices,
                   .rows = moe.moe_intermediate_size,
                   .cols = expert_hidden});
  if (moe.shared_intermediate_size > 0) {
    parts.push_back({.key = "experts.shared",
                     .title = "shared experts",
                     .role = Role::kShared,
                     .cut = Cut::kTensor,
                     .copies = matrices,
                     .rows = moe.shared_intermediate_size,
                     .cols = hidden});
  }
  if (moe.shared_gate) vector(parts, "norms.shared_gate", "gate of the shared expert", hidden);
  if (model.mlp_bias) {
    vector(parts, "norms.expert_bias", "expert biases",
           moe.num_experts * ((matrices - 1) * std::int64_t{moe.moe_intermediate_size} + hidden));
  }
}

Parts one_layer(const ModelConfig& model, int layer, bool mtp) {
  Parts parts;
  for (const LayerCache& cache : model.layers) {
    if (cache.mtp == mtp && cache.model_layer == layer) add_mixer(parts, model, cache);
  }
  for (const LayerFfn& ffn : model.ffn) {
    if (ffn.mtp == mtp && ffn.model_layer == layer) add_ffn(parts, model, ffn);
  }
  vector(parts, "norms.layer", "layer norms", std::int64_t{model.norms_per_layer} * model.hidden_size);
  return parts;
}

}  // namespace

std::vector<WeightPart> layer_weights(const ModelConfig& model, int layer) {
  return one_layer(model, layer, false);
}

std::vector<WeightPart> mtp_weights(const ModelConfig& model) {
  Parts parts;
  std::vector<int> modules;
  for (const LayerFfn& ffn : model.ffn) {
    if (ffn.mtp) modules.push_back(ffn.model_layer);
  }
  for (const int layer : modules) {
    Parts module = one_layer(model, layer, true);
    parts.insert(parts.end(), module.begin(), module.end());
    const std::int64_t hidden = model.hidden_size;
    parts.push_back({.key = "mtp.eh_proj",
                     .title = "eh_proj: embedding and hidden state joined",
                     .role = Role::kRouter,  // stored unquantised
                     .rows = hidden,
                     .cols = 2 * hidden});
    vector(parts, "norms.mtp", "norms of the prediction module", 3 * hidden);
  }
  for (WeightPart& part : parts) {
    if (part.role == Role::kVector) part.key = "mtp.norms";
  }
  return parts;
}

WeightPart embedding_weights(const ModelConfig& model) {
  return {.key = "embeddings.tokens",
          .title = "token embedding",
          .role = Role::kEmbedding,
          .cut = Cut::kVocab,
          .rows = model.vocab_size,
          .cols = model.hidden_size};
}

WeightPart head_weights(const ModelConfig& model) {
  return {.key = "embeddings.head",
          .title = "lm_head",
          .role = Role::kHead,
          .cut = Cut::kVocab,
          .rows = model.vocab_size,
          .cols = model.hidden_size};
}

WeightPart final_norm(const ModelConfig& model) {
  return {.key = "norms.final",
          .title = "final norm",
          .role = Role::kVector,
          .rows = 1,
          .cols = model.hidden_size};
}

std::vector<WeightPart> tower_weights(const ModelConfig& model) {
  if (!model.tower) return {};
  const TowerConfig& tower = *model.tower;
  constexpr std::int64_t kChannels = 3;
  const std::int64_t width = tower.hidden_size;
  const std::int64_t ffn = tower.intermediate_size;
  const std::int64_t merged = tower.merged_patches * width;
  const std::int64_t layers = tower.layers;
  const auto part = [](std::string_view key, std::string_view title, Cut cut, std::int64_t copies,
                       std::int64_t rows, std::int64_t cols) {
    return WeightPart{.key = key,
                      .title = title,
                      .role = Role::kTower,
                      .cut = cut,
                      .copies = copies,
                      .rows = rows,
                      .cols = cols};
  };
  return {
      part("other.tower_attention", "vision tower: q, k, v and output", Cut::kTensor, 4 * layers, width,
           width),
      part("other.tower_ffn", "vision tower: FFN", Cut::kTensor, 2 * layers, ffn, width),
      part("other.tower_vectors", "vision tower: biases and norms", Cut::kWhole, layers, 1, 9 * width + ffn),
      part("other.tower_patches", "vision tower: patches, positions and norms", Cut::kWhole, 1, width,
           kChannels * tower.patch * tower.patch + 1 + tower.positions + 4),
      part("other.projector_in", "projector, in", Cut::kWhole, 1, merged + 1, merged),
      part("other.projector_out", "projector, out", Cut::kWhole, 1, model.hidden_size, merged + 1)};
}

std::vector<std::string> weight_gaps(const ModelConfig& model) {
  std::vector<std::string> gaps;
  if (model.multimodal && !model.tower)
    gaps.emplace_back("the vision or audio tower is not counted: its config is not read");
  if (model.vocab_size == 0) {
    gaps.emplace_back("no vocab_size in the config: embedding, head and logits are not counted");
  }
  if (std::ranges::any_of(model.ffn, [](const LayerFfn& ffn) {
        return ffn.dense_count > 0 && ffn.dense_intermediate_size == 0;
      })) {
    gaps.emplace_back("no intermediate_size in the config: dense feed-forward parts are not counted");
  }
  if (model.ffn.empty()) gaps.emplace_back("the feed-forward layers are not described");
  const bool recurrent = model.count(AttentionKind::kRecurrent) > 0;
  if (recurrent && !model.recurrent) gaps.emplace_back("the recurrent layers' widths are not described");
  if (model.compressed && model.compressed->hyper_connections > 1) {
    gaps.emplace_back("the mixing weights of the hyper-connections are not counted (well under 0.1 %)");
  }
  return gaps;
}

}  // namespace mla::capacity
