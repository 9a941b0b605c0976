// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "model/reading.hpp"

namespace mla {
namespace {

// Widths of an ordinary attention layer; window layers and full layers may differ.
struct HeadWidths {
  int q_heads = 0, kv_heads = 0, k = 0, v = 0;
};

LayerCache heads_layer(const HeadWidths& widths) {
  LayerCache layer;
  layer.kind = kind_of_heads(widths.q_heads, widths.kv_heads);
  layer.q_heads = widths.q_heads;
  layer.kv_heads = widths.kv_heads;
  layer.head_dim_k = widths.k;
  layer.head_dim_v = widths.v;
  return layer;
}

HeadWidths common_widths(const Reading& reading) {
  const ModelConfig& model = *reading.model;
  HeadWidths widths{model.num_heads, model.num_kv_heads, model.head_dim, model.head_dim};
  // VL2-tiny keeps MLA's v_head_dim as 0 beside use_mla false.
  const auto value = reading.text.integer("v_head_dim", {"v_head_dim"}, {0, 1 << 16});
  if (value && *value > 0) widths.v = static_cast<int>(*value);
  return widths;
}

void override_width(const Fields& fields, int& width, std::string_view ours, std::string_view key) {
  if (const auto value = fields.integer(ours, {key}, {1, 1 << 16})) width = static_cast<int>(*value);
}

// MiMo-V2's swa_* fields and Step-3.7's attention_other_setting describe the window layers.
HeadWidths window_widths(const Reading& reading, HeadWidths widths) {
  const Fields& text = reading.text;
  override_width(text, widths.q_heads, "window num_heads", "swa_num_attention_heads");
  override_width(text, widths.kv_heads, "window num_kv_heads", "swa_num_key_value_heads");
  if (const auto width = text.integer("window head_dim", {"swa_head_dim"}, {1, 1 << 16})) {
    if (widths.v == widths.k) widths.v = static_cast<int>(*width);
    widths.k = static_cast<int>(*width);
  }
  override_width(text, widths.v, "window v_head_dim", "swa_v_head_dim");
  if (const auto other = text.nested("attention_other_setting")) {
    override_width(*other, widths.q_heads, "window num_heads", "num_attention_heads");
    override_width(*other, widths.kv_heads, "window num_kv_heads", "num_attention_groups");
    if (const auto width = other->integer("window head_dim", {"head_dim"}, {1, 1 << 16})) {
      widths.k = widths.v = static_cast<int>(*width);
    }
  }
  return widths;
}

// Gemma-4: the full layers have their own number of KV heads and width.
HeadWidths full_widths(const Reading& reading, HeadWidths widths) {
  const Fields& text = reading.text;
  override_width(text, widths.kv_heads, "global num_kv_heads", "num_global_key_value_heads");
  if (const auto width = text.integer("global head_dim", {"global_head_dim"}, {1, 1 << 16})) {
    widths.k = widths.v = static_cast<int>(*width);
  }
  return widths;
}

void check_heads(const Reading& reading, const HeadWidths& widths) {
  if (widths.kv_heads <= widths.q_heads && widths.q_heads % widths.kv_heads == 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: {} KV heads cannot serve {} query heads evenly", reading.text.origin(),
                          widths.kv_heads, widths.q_heads));
}

class LayerBuilder {
 public:
  explicit LayerBuilder(Reading& reading) : reading_(reading), model_(*reading.model) {
    if (reading.family == AttentionFamily::kHeads) {
      const HeadWidths common = common_widths(reading);
      full_ = full_widths(reading, common);
      window_widths_ = window_widths(reading, common);
      check_heads(reading, full_);
      check_heads(reading, window_widths_);
    }
    window_ = window_size(reading);
    chunk_ = reading.text.integer("attention_chunk_size", {"attention_chunk_size"}, kTokens).value_or(0);
  }

  LayerCache build(LayerRole role, int model_layer) const {
    LayerCache layer = of_role(role);
    layer.model_layer = model_layer;
    return layer;
  }

 private:
  LayerCache of_role(LayerRole role) const {
    LayerCache layer;
    switch (role) {
      case LayerRole::kNone:
        layer.kind = AttentionKind::kNone;
        return layer;
      case LayerRole::kRecurrent:
        layer.kind = AttentionKind::kRecurrent;
        if (!model_.recurrent) refuse_unknown_recurrence();
        layer.state_bytes = model_.recurrent->state_bytes();
        return layer;
      case LayerRole::kFull:
        return attention(full_);
      case LayerRole::kWindow:
        layer = attention(window_widths_);
        if (window_ == 0 && !reading_.text.has_any({"sliding_window", "sliding_window_size"})) {
          reading_.text.missing({"sliding_window"}, "the list of layers names window layers");
        }
        layer.window = window_;
        return layer;
      case LayerRole::kChunk:
        layer = attention(full_);
        if (chunk_ == 0)
          reading_.text.missing({"attention_chunk_size"}, "the list of layers names chunked layers");
        layer.window = chunk_;
        layer.chunked = true;
        return layer;
    }
    return layer;
  }

  LayerCache attention(const HeadWidths& widths) const {
    if (reading_.family == AttentionFamily::kHeads) return heads_layer(widths);
    LayerCache layer;
    layer.kind = AttentionKind::kMla;
    layer.q_heads = model_.num_heads;
    return layer;
  }

  [[noreturn]] void refuse_unknown_recurrence() const {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: some layers are recurrent, but their state cannot be sized from the file",
                            reading_.text.origin()),
                "read are linear_attn_config, linear_*_head_dim, mamba_* fields and Bailing's");
  }

  const Reading& reading_;
  const ModelConfig& model_;
  HeadWidths full_, window_widths_;
  std::int64_t window_ = 0, chunk_ = 0;
};

// The last layers of Gemma-3n and Gemma-4-E read the cache of earlier ones and store nothing.
void drop_shared_caches(Reading& reading) {
  ModelConfig& model = *reading.model;
  const auto shared =
      reading.text.integer("num_kv_shared_layers", {"num_kv_shared_layers"}, {0, 4096}).value_or(0);
  for (LayerCache& layer : model.layers) {
    if (layer.model_layer < model.num_layers - shared || layer.kind == AttentionKind::kRecurrent) continue;
    LayerCache none;
    none.kind = AttentionKind::kNone;
    none.model_layer = layer.model_layer;
    none.q_heads = layer.q_heads;
    layer = none;
  }
}

void add_mtp_layers(Reading& reading, const LayerBuilder& builder, const std::vector<LayerRole>& roles) {
  ModelConfig& model = *reading.model;
  const std::vector<Block> blocks = separate_mtp_blocks(reading);
  const bool recurrent = reading.text.boolean("mtp_use_kda", {"mtp_use_kda"}).value_or(false);
  for (int i = 0; i < model.num_mtp_layers; ++i) {
    const auto listed = static_cast<std::size_t>(model.num_layers + i);
    LayerRole role = listed < roles.size() ? roles[listed] : LayerRole::kFull;
    if (recurrent) role = LayerRole::kRecurrent;
    if (!blocks.empty() && std::count(blocks.begin(), blocks.end(), Block::kAttention) == 0)
      role = LayerRole::kNone;
    LayerCache layer = builder.build(role, model.num_layers + i);
    layer.mtp = true;
    layer.indexer = model.indexer.has_value() && layer.kind == AttentionKind::kMla;
    model.layers.push_back(layer);
  }
}

void add_compressed_layers(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  if (!text.has("compress_ratios"))
    text.missing({"compress_ratios"}, "it says how each layer of this model compresses");
  const std::vector<std::int64_t> ratios = text.integers("compress_ratios", {0, 1 << 20});
  const auto layers = static_cast<std::size_t>(model.num_layers);
  const auto with_mtp = layers + static_cast<std::size_t>(model.num_mtp_layers);
  if (ratios.size() != layers && ratios.size() != with_mtp) {
    text.wrong("compress_ratios", fmt::format("one entry for each of the {} layers{}", layers,
                                              with_mtp > layers ? " (and the MTP layer)" : ""));
  }
  for (std::size_t i = 0; i < with_mtp; ++i) {
    LayerCache layer;
    layer.kind = AttentionKind::kCompressed;
    layer.model_layer = static_cast<int>(i);
    layer.q_heads = model.num_heads;
    layer.kv_heads = model.num_kv_heads;
    layer.head_dim_k = model.head_dim;
    layer.window = model.compressed->window;
    layer.compress_ratio = i < ratios.size() ? static_cast<int>(ratios[i]) : 0;
    // The fine compression chooses among its entries, and keeps index keys for it; the coarse one reads them
    // all.
    layer.indexer = model.indexer.has_value() && layer.compress_ratio == 4;
    layer.mtp = i >= layers;
    model.layers.push_back(layer);
  }
  text.note("layers", fmt::format("{} entries", ratios.size()), text.path("compress_ratios"));
}

}  // namespace

AttentionKind kind_of_heads(int q_heads, int kv_heads) noexcept {
  if (kv_heads == q_heads) return AttentionKind::kMha;
  return kv_heads == 1 ? AttentionKind::kMqa : AttentionKind::kGqa;
}

void read_layers(Reading& reading) {
  ModelConfig& model = *reading.model;
  if (reading.family == AttentionFamily::kCompressed) return add_compressed_layers(reading);
  if (const json::Value* blocks = reading.text.get("block_configs");
      blocks != nullptr && !blocks->is_null()) {
    const json::Array* list = blocks->get_if<json::Array>();
    if (list == nullptr) reading.text.wrong("block_configs", "a list, one object a layer");
    return read_nas_layers(reading, *list);
  }
  const std::vector<LayerRole> roles = layer_roles(reading);
  const bool recurrent = std::count(roles.begin(), roles.end(), LayerRole::kRecurrent) > 0;
  if (recurrent) read_recurrent(reading);
  const std::vector<bool> indexer = indexer_layers(reading);
  const LayerBuilder builder(reading);
  const int copies = reading.is_longcat() ? 2 : 1;
  for (int i = 0; i < model.num_layers; ++i) {
    LayerCache layer = builder.build(roles[static_cast<std::size_t>(i)], i);
    layer.indexer = layer.kind == AttentionKind::kMla && indexer[static_cast<std::size_t>(i)];
    model.layers.insert(model.layers.end(), static_cast<std::size_t>(copies), layer);
  }
  if (copies == 2)
    reading.text.note("layers", fmt::format("{} caches", 2 * model.num_layers),
                      "rule of LongCat: two attentions a layer");
  drop_shared_caches(reading);
  add_mtp_layers(reading, builder, roles);
  if (reading.family == AttentionFamily::kMla && model.count(AttentionKind::kMla) == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: an MLA model without one attention layer", reading.text.origin()));
  }
}

}  // namespace mla
