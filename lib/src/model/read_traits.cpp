// SPDX-License-Identifier: Apache-2.0
// What weights need to know and files leave to the model's class: norms, gates, biases, tied embeddings.
#include <fmt/format.h>
#include <array>

#include <algorithm>

#include "model/reading.hpp"

namespace mla {
namespace {

template <std::size_t N>
bool is_any(const Reading& reading, const std::array<const char*, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return reading.is_type(prefix); });
}

constexpr std::array kTiedByDefault = {"gemma", "minicpm", "cohere", "gpt2", "opt", "bloom", "falcon"};
constexpr std::array kPlainFfn = {"nemotron", "gpt2", "gpt_neox",  "gptj", "gpt_bigcode", "opt",
                                  "falcon",   "phi",  "starcoder", "mpt",  "bloom"};
constexpr std::array kQkNormPerHead = {"qwen3", "gemma3", "gemma4", "minimax_m3", "glm4_moe", "step3p"};
constexpr std::array kQkNormPerLayer = {"olmo2", "olmo3", "minimax_m2"};

bool tied(const Reading& reading) {
  const Keys keys = {"tie_word_embeddings", "tied_embeddings"};
  if (const auto value = reading.where(keys).boolean("tie_word_embeddings", keys)) return *value;
  const bool by_class = is_any(reading, kTiedByDefault);
  reading.text.note("tie_word_embeddings", by_class ? "true" : "false", "default of the class");
  return by_class;
}

QkNorm query_key_norm(const Reading& reading) {
  const Fields& text = reading.text;
  const auto used = text.boolean("use_qk_norm", {"use_qk_norm"});
  // Llama-4's norm has no weights; an MLA layer's norms are those of its latents.
  if (used == std::optional(false) || reading.is_type("llama4") ||
      reading.family != AttentionFamily::kHeads) {
    return QkNorm::kNone;
  }
  const std::string kind = text.string("qk_norm_type", {"qk_norm_type"}).value_or("");
  if (kind == "per_layer" || is_any(reading, kQkNormPerLayer)) return QkNorm::kPerLayer;
  if (used == std::optional(true) || kind == "per_head") return QkNorm::kPerHead;
  const bool by_class = is_any(reading, kQkNormPerHead) && !(reading.is_type("glm4_moe") && !used);
  return by_class ? QkNorm::kPerHead : QkNorm::kNone;
}

int norms(const Reading& reading) {
  if (reading.is_type("gemma2") || reading.is_type("gemma3") || reading.is_type("gemma4")) return 4;
  if (reading.is_longcat()) return 4;
  if (reading.text.boolean("sandwich_norm", {"sandwich_norm"}).value_or(false)) return 4;
  return separate_blocks(reading).empty() ? 2 : 1;
}

void read_gate(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  for (const char* key : {"attn_output_gate", "mla_use_output_gate"}) {
    if (text.boolean("attention_gate", {key}).value_or(false)) model.attention_gate = true;
  }
  if (reading.is_type("qwen3_next")) model.attention_gate = true;
  model.attention_gate_per_head =
      text.boolean("attention_gate_per_head", {"use_head_wise_attn_gate"}).value_or(false) ||
      text.string("attention_gate_per_head", {"gated_attention_proj_granularity_type"}).value_or("") ==
          "head_wise";
}

}  // namespace

void read_traits(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  model.tie_word_embeddings = tied(reading);
  model.ffn_gated = !is_any(reading, kPlainFfn) || reading.is_type("phi3") || reading.is_type("nemotron-nas");
  model.qk_norm = query_key_norm(reading);
  model.norms_per_layer = norms(reading);
  model.qkv_bias = (reading.is_type("qwen2") && !text.has("attention_bias")) ||
                   text.boolean("qkv_bias", {"qkv_bias", "use_qkv_bias"}).value_or(false);
  model.attention_sinks = reading.is_type("gpt_oss") || reading.family == AttentionFamily::kCompressed;
  model.k_eq_v = text.boolean("k_eq_v", {"attention_k_eq_v"}).value_or(false);
  read_gate(reading);
}

}  // namespace mla
