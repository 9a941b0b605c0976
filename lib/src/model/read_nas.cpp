// SPDX-License-Identifier: Apache-2.0
// Models found by architecture search (Nemotron-NAS, DeciLM): every layer has its own heads and feed-forward
// width.
#include <fmt/format.h>

#include "model/reading.hpp"

namespace mla {
namespace {

// DeciLM's width: 2/3 of multiplier x hidden, rounded up to a multiple of 256.
int width_of(double multiplier, int hidden) {
  const auto plain = static_cast<std::int64_t>(2.0 * multiplier * hidden / 3.0);
  return static_cast<int>((plain + 255) / 256 * 256);
}

LayerCache read_attention(const Reading& reading, const Fields& block, int model_layer) {
  const ModelConfig& model = *reading.model;
  LayerCache layer;
  layer.model_layer = model_layer;
  layer.kind = AttentionKind::kNone;
  const std::optional<Fields> attention = block.nested("attention");
  if (!attention) block.missing({"attention"}, "every block says whether it attends");
  const bool absent = attention->boolean("no_op", {"no_op"}).value_or(false);
  // A linear replacement is a matrix over the hidden state: weights, but no past.
  const bool linear = attention->boolean("replace_with_linear", {"replace_with_linear"}).value_or(false);
  if (absent || linear) return layer;
  layer.q_heads = model.num_heads;
  if (const auto heads = attention->integer("num_kv_heads", {"num_key_value_heads"}, {1, 1 << 14})) {
    layer.kv_heads = static_cast<int>(*heads);
    if (model.num_heads % layer.kv_heads != 0)
      attention->wrong("num_key_value_heads",
                       fmt::format("a divisor of num_attention_heads ({})", model.num_heads));
  } else {
    const int group = attention->required("n_heads_in_group", {"n_heads_in_group"}, {1, 1 << 14},
                                          "the block attends and must say how many heads share a KV head");
    if (model.num_heads % group != 0) {
      attention->wrong("n_heads_in_group",
                       fmt::format("a divisor of num_attention_heads ({})", model.num_heads));
    }
    layer.kv_heads = model.num_heads / group;
  }
  layer.kind = kind_of_heads(layer.q_heads, layer.kv_heads);
  layer.head_dim_k = layer.head_dim_v = model.head_dim;
  layer.window = attention->integer("window_length", {"window_length"}, kTokens).value_or(0);
  return layer;
}

LayerFfn read_block_ffn(const Reading& reading, const Fields& block, int model_layer) {
  LayerFfn ffn;
  ffn.model_layer = model_layer;
  const std::optional<Fields> part = block.nested("ffn");
  if (!part) block.missing({"ffn"}, "every block says whether it has a feed-forward part");
  if (part->boolean("no_op", {"no_op"}).value_or(false)) return ffn;
  if (part->has("moe")) {
    throw Error(ErrorCode::kUnsupported, fmt::format("{}: {} describes experts, which cannot be read",
                                                     part->origin(), part->path("moe")));
  }
  if (const auto width = part->integer("intermediate_size", {"intermediate_size"}, kWidth)) {
    ffn.dense_intermediate_size = static_cast<int>(*width);
  } else if (const auto multiplier = part->real("ffn_mult", {"ffn_mult"}, 0.0, 64.0)) {
    ffn.dense_intermediate_size = width_of(*multiplier, reading.model->hidden_size);
  } else {
    part->missing({"ffn_mult", "intermediate_size"}, "the block has a feed-forward part of some width");
  }
  ffn.dense_count = 1;
  return ffn;
}

}  // namespace

void read_nas_layers(Reading& reading, const json::Array& blocks) {
  ModelConfig& model = *reading.model;
  if (blocks.size() != static_cast<std::size_t>(model.num_layers)) {
    reading.text.wrong("block_configs", fmt::format("one entry for each of the {} layers", model.num_layers));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    // No notes: 80 blocks of 6 fields each would drown the others.
    const Fields block(blocks[i], reading.text.origin(),
                       reading.text.path(fmt::format("block_configs[{}]", i)));
    model.layers.push_back(read_attention(reading, block, static_cast<int>(i)));
    model.ffn.push_back(read_block_ffn(reading, block, static_cast<int>(i)));
  }
  reading.text.note("layers",
                    fmt::format("{} blocks, {} of them without attention", blocks.size(),
                                model.count(AttentionKind::kNone)),
                    reading.text.path("block_configs"));
}

}  // namespace mla
