// SPDX-License-Identifier: Apache-2.0
// Layer roles that follow from a period, a window or the model's class.
#include <fmt/format.h>

#include <algorithm>

#include "model/reading.hpp"

namespace mla {
namespace {

using Roles = std::vector<LayerRole>;

// Every `period`-th layer has role `last`, counted from 1, the others `other`.
Roles periodic(int layers, std::int64_t period, LayerRole last, LayerRole other) {
  Roles roles(static_cast<std::size_t>(layers), other);
  for (std::int64_t i = period - 1; i < layers; i += period) roles[static_cast<std::size_t>(i)] = last;
  return roles;
}

// Ling-2.5 and later: the last layer of every group, and all of a trailing partial group.
Roles grouped(int layers, std::int64_t group) {
  Roles roles = periodic(layers, group, LayerRole::kFull, LayerRole::kRecurrent);
  for (std::int64_t i = layers / group * group; i < layers; ++i)
    roles[static_cast<std::size_t>(i)] = LayerRole::kFull;
  return roles;
}

Roles with_offset(int layers, std::int64_t period, std::int64_t offset) {
  Roles roles(static_cast<std::size_t>(layers), LayerRole::kRecurrent);
  for (std::int64_t i = offset; i < layers; i += period)
    roles[static_cast<std::size_t>(i)] = LayerRole::kFull;
  return roles;
}

Roles at_indices(const Reading& reading, std::string_view key) {
  const int layers = reading.model->num_layers;
  Roles roles(static_cast<std::size_t>(layers), LayerRole::kRecurrent);
  for (const std::int64_t index : reading.text.integers(key, {0, layers - 1})) {
    roles[static_cast<std::size_t>(index)] = LayerRole::kFull;
  }
  return roles;
}

Roles recurrent_rules(const Reading& reading) {
  const Fields& text = reading.text;
  const int layers = reading.model->num_layers;
  if (const auto group = text.integer("layer_group_size", {"layer_group_size"}, kLayers))
    return grouped(layers, *group);
  if (const auto every = text.integer("full_attention_interval", {"full_attention_interval"}, kLayers)) {
    return periodic(layers, *every, LayerRole::kFull, LayerRole::kRecurrent);
  }
  if (const auto period = text.integer("attn_layer_period", {"attn_layer_period"}, kLayers)) {
    const auto offset = text.integer("attn_layer_offset", {"attn_layer_offset"}, {0, *period - 1});
    if (!offset) text.missing({"attn_layer_offset"}, "attn_layer_period needs it");
    return with_offset(layers, *period, *offset);
  }
  if (text.has("attn_layer_indices")) return at_indices(reading, "attn_layer_indices");
  return {};
}

// Llama-4: attention in chunks with rotary positions, but for the layers of no_rope_layers' zeros (every 4th
// by default).
Roles llama4_rules(const Reading& reading) {
  const Fields& text = reading.text;
  const int layers = reading.model->num_layers;
  if (!text.has("attention_chunk_size") || !reading.is_type("llama4")) return {};
  const std::vector<std::int64_t> rotary = text.integers("no_rope_layers", {0, 1});
  if (rotary.empty()) {
    const int every = text.integer_or("no_rope_layer_interval", {"no_rope_layer_interval"}, kLayers, 4,
                                      "default of Llama4TextConfig");
    return periodic(layers, every, LayerRole::kFull, LayerRole::kChunk);
  }
  if (rotary.size() != static_cast<std::size_t>(layers)) text.wrong("no_rope_layers", "one entry a layer");
  Roles roles;
  for (const std::int64_t flag : rotary) roles.push_back(flag == 1 ? LayerRole::kChunk : LayerRole::kFull);
  return roles;
}

std::int64_t window_period(const Reading& reading) {
  const Fields& text = reading.text;
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (const auto period = text.integer("sliding_window_pattern", {key}, kLayers)) return *period;
  }
  if (reading.is_type("gemma3") && !reading.is_type("gemma3n")) {
    return text.integer_or("sliding_window_pattern", {}, kLayers, 6, "default of Gemma3TextConfig");
  }
  if (reading.is_type("cohere2")) {
    return text.integer_or("sliding_window_pattern", {}, kLayers, 4, "default of Cohere2Config");
  }
  return 0;
}

Roles window_rules(const Reading& reading) {
  const Fields& text = reading.text;
  const int layers = reading.model->num_layers;
  if (window_size(reading) == 0) return {};
  if (const std::int64_t period = window_period(reading); period > 0) {
    return periodic(layers, period, LayerRole::kFull, LayerRole::kWindow);
  }
  if (reading.is_type("gemma2") || reading.is_type("gpt_oss")) {
    text.note("layers", "window on every other one, beginning with the first",
              "rule of the " + reading.model->model_type + " class");
    return periodic(layers, 2, LayerRole::kFull, LayerRole::kWindow);
  }
  Roles roles(static_cast<std::size_t>(layers), LayerRole::kWindow);
  // Qwen2: the first max_window_layers layers see everything.
  if (reading.is_type("qwen") && text.has("max_window_layers")) {
    const auto first = text.integer("max_window_layers", {"max_window_layers"}, {0, 1 << 20}).value_or(0);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(first, layers); ++i) {
      roles[static_cast<std::size_t>(i)] = LayerRole::kFull;
    }
  }
  return roles;
}

// A file that says in other words that its layers differ must not be charged as attention on every layer.
void refuse_unplaced_layers(const Fields& text) {
  for (const char* key :
       {"ssm_cfg", "ssm_state_size", "mamba_d_state", "mamba_n_heads", "mamba_num_heads", "lru_width",
        "time_mix_extra_dim", "rwkv_version", "conv_L_cache", "linear_num_value_heads", "block_types",
        "swa_layers", "dsa_layers", "sliding_window_list"}) {
    if (!text.has(key)) continue;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {} says that layers differ, but nothing that can be read says which is which",
                    text.origin(), text.path(key)),
        "layer_types, hybrid_override_pattern, layers_block_type or attn_layer_indices would");
  }
}

}  // namespace

std::int64_t window_size(const Reading& reading) {
  const Fields& text = reading.text;
  const ModelConfig& model = *reading.model;
  const auto window =
      text.integer("sliding_window", {"sliding_window", "sliding_window_size"}, {0, std::int64_t{1} << 40})
          .value_or(0);
  if (window == 0) return 0;
  if (text.boolean("use_sliding_window", {"use_sliding_window"}) == std::optional(false)) {
    text.note("sliding_window", "off", text.path("use_sliding_window") + " is false");
    return 0;
  }
  if (model.max_position > 0 && window >= model.max_position) {
    text.note("sliding_window", "off",
              fmt::format("derived: {} is not below the longest position {}", window, model.max_position));
    return 0;
  }
  return window;
}

std::vector<LayerRole> layer_roles(const Reading& reading) {
  if (Roles roles = listed_roles(reading); !roles.empty()) return roles;
  if (Roles roles = recurrent_rules(reading); !roles.empty()) return roles;
  refuse_unplaced_layers(reading.text);
  if (Roles roles = llama4_rules(reading); !roles.empty()) return roles;
  if (Roles roles = window_rules(reading); !roles.empty()) return roles;
  return Roles(static_cast<std::size_t>(reading.model->num_layers), LayerRole::kFull);
}

}  // namespace mla
