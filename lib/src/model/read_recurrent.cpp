// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "model/reading.hpp"

namespace mla {
namespace {

constexpr Range kKernel{1, 64};
constexpr Range kHeads{1, 1 << 14};
constexpr Range kStateWidth{1, 1 << 13};  // with kHeads no product leaves an int

int element_bytes(const Reading& reading, int fallback, std::string_view from) {
  const Fields& text = reading.text;
  const Keys keys = {"mamba_ssm_cache_dtype", "mamba_ssm_dtype"};
  const std::optional<std::string> dtype = text.string("state dtype", keys);
  if (!dtype) {
    text.note("state element bytes", fmt::format("{}", fallback), std::string(from));
    return fallback;
  }
  if (*dtype == "float32") return 4;
  if (*dtype == "bfloat16" || *dtype == "float16") return 2;
  text.wrong(text.has("mamba_ssm_cache_dtype") ? "mamba_ssm_cache_dtype" : "mamba_ssm_dtype",
             "float32, bfloat16 or float16");
}

// Kimi Delta Attention: a [D, D] state a head in f32, and short convolutions over q, k and v.
RecurrentConfig kda(const Reading& reading, int heads, int width, int kernel) {
  RecurrentConfig config;
  config.kind = RecurrentKind::kKda;
  config.num_k_heads = config.num_v_heads = heads;
  config.head_dim_k = config.head_dim_v = width;
  config.conv_kernel = kernel;
  config.conv_channels = 3 * heads * width;
  config.state_element_bytes = element_bytes(reading, 4, "rule of KDA: its state is f32");
  return config;
}

RecurrentConfig read_kda(const Reading& reading, const Fields& fields) {
  RecurrentConfig config = kda(reading, fields.required("KDA heads", {"num_heads"}, kHeads),
                               fields.required("KDA head_dim", {"head_dim"}, kStateWidth),
                               fields.required("KDA convolution", {"short_conv_kernel_size"}, kKernel));
  config.full_rank_gate = fields.boolean("full-rank gate", {"use_full_rank_gate"}).value_or(false);
  return config;
}

// Ling-3 has KDA layers with the attention's own heads; Ling-2.5 lightning layers without a convolution.
RecurrentConfig read_bailing(const Reading& reading) {
  const Fields& text = reading.text;
  const int width =
      text.required("linear head_dim", {"head_dim"}, kStateWidth, "the linear layers' head width");
  const auto kernel = text.integer("KDA convolution", {"short_conv_kernel_size"}, kKernel);
  if (kernel) {
    RecurrentConfig config = kda(reading, reading.model->num_heads, width, static_cast<int>(*kernel));
    config.full_rank_gate = text.boolean("full-rank gate", {"no_kda_lora"}).value_or(false);
    return config;
  }
  RecurrentConfig config;
  config.kind = RecurrentKind::kLightning;
  config.num_k_heads = config.num_v_heads = reading.model->num_heads;
  config.head_dim_k = config.head_dim_v = width;
  config.state_element_bytes = element_bytes(reading, 4, "rule of lightning attention: its state is f32");
  return config;
}

RecurrentConfig read_gated_delta(const Reading& reading) {
  const Fields& text = reading.text;
  RecurrentConfig config;
  config.kind = RecurrentKind::kGatedDelta;
  config.num_k_heads = text.required("linear key heads", {"linear_num_key_heads"}, kHeads);
  config.num_v_heads = text.required("linear value heads", {"linear_num_value_heads"}, kHeads);
  config.head_dim_k = text.required("linear key width", {"linear_key_head_dim"}, kStateWidth);
  config.head_dim_v = text.required("linear value width", {"linear_value_head_dim"}, kStateWidth);
  config.conv_kernel = text.required("linear convolution", {"linear_conv_kernel_dim"}, kKernel);
  config.conv_channels = 2 * config.num_k_heads * config.head_dim_k + config.num_v_heads * config.head_dim_v;
  config.state_element_bytes = element_bytes(reading, 2, "default: the model's own dtype");
  return config;
}

RecurrentConfig read_mamba2(const Reading& reading) {
  const Fields& text = reading.text;
  RecurrentConfig config;
  config.kind = RecurrentKind::kMamba2;
  config.num_v_heads = text.required("Mamba heads", {"mamba_num_heads", "mamba_n_heads"}, kHeads);
  config.head_dim_v = text.required("Mamba head_dim", {"mamba_head_dim", "mamba_d_head"}, kStateWidth);
  config.head_dim_k = text.required("Mamba state size", {"ssm_state_size", "mamba_d_state"}, kStateWidth);
  config.num_k_heads = text.required("Mamba groups", {"n_groups", "mamba_n_groups"}, kHeads);
  config.conv_kernel = text.required("Mamba convolution", {"conv_kernel", "mamba_d_conv"}, kKernel);
  config.conv_channels = config.num_v_heads * config.head_dim_v + 2 * config.num_k_heads * config.head_dim_k;
  config.state_element_bytes = element_bytes(reading, 2, "default: the model's own dtype");
  return config;
}

RecurrentConfig read_mamba1(const Reading& reading) {
  const Fields& text = reading.text;
  RecurrentConfig config;
  config.kind = RecurrentKind::kMamba1;
  const int expand = text.required("Mamba expansion", {"mamba_expand"}, {1, 64});
  config.num_v_heads = expand * reading.model->hidden_size;
  config.num_k_heads = 1;
  config.head_dim_v = 1;
  config.head_dim_k = text.required("Mamba state size", {"mamba_d_state"}, kStateWidth);
  config.conv_kernel = text.required("Mamba convolution", {"mamba_d_conv"}, kKernel);
  config.conv_channels = config.num_v_heads;
  config.state_element_bytes = element_bytes(reading, 2, "default: the model's own dtype");
  return config;
}

// MiniMax-01: lightning attention with the heads of the softmax layers.
RecurrentConfig read_lightning(const Reading& reading) {
  RecurrentConfig config;
  config.kind = RecurrentKind::kLightning;
  config.num_k_heads = config.num_v_heads = reading.model->num_heads;
  config.head_dim_k = config.head_dim_v = reading.model->head_dim;
  config.state_element_bytes = element_bytes(reading, 4, "rule of lightning attention: its state is f32");
  return config;
}

}  // namespace

void read_recurrent(Reading& reading) {
  const Fields& text = reading.text;
  std::optional<RecurrentConfig>& config = reading.model->recurrent;
  if (const auto linear = text.nested("linear_attn_config")) {
    config = read_kda(reading, *linear);
  } else if (text.has("linear_num_value_heads")) {
    config = read_gated_delta(reading);
  } else if (text.has_any({"mamba_num_heads", "mamba_n_heads"})) {
    config = read_mamba2(reading);
  } else if (text.has("mamba_d_state")) {
    config = read_mamba1(reading);
  } else if (text.has("layer_group_size")) {
    config = read_bailing(reading);
  } else if (text.has("attn_type_list")) {
    config = read_lightning(reading);
  }
}

void read_compressed(Reading& reading) {
  if (reading.family != AttentionFamily::kCompressed) return;
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  CompressedConfig config;
  config.head_dim = model.head_dim;
  config.rope_head_dim = text.required("qk_rope_head_dim", {"qk_rope_head_dim"}, {0, model.head_dim},
                                       "the rotated part of an entry is stored apart");
  config.window = text.required("sliding_window", {"sliding_window"}, {1, 1 << 30},
                                "every layer keeps that many uncompressed tokens");
  config.o_lora_rank =
      text.integer_or("o_lora_rank", {"o_lora_rank"}, {0, 1 << 20}, 0, "absent: one output matrix");
  config.o_groups = text.integer_or("o_groups", {"o_groups"}, {0, 1 << 14}, 0, "absent: one output matrix");
  config.hyper_connections = text.integer_or("hyper-connections", {"hc_mult"}, {0, 64}, 0, "absent: none");
  config.hash_layers = text.integer_or("hash layers", {"num_hash_layers"}, {0, 4096}, 0, "absent: none");
  config.compress_rope_theta =
      text.real("compress_rope_theta", {"compress_rope_theta"}, 0.0, 1e12).value_or(0.0);
  model.compressed = config;
}

}  // namespace mla
