// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/model.hpp"
#include "model/fields.hpp"

namespace mla {

/// Which formula a model's attention follows; decided by markers before any field is read.
enum class AttentionFamily : std::uint8_t { kHeads, kMla, kCompressed };

/// A config.json being read into a ModelConfig: one function a topic, in the order they stand here.
struct Reading {
  Fields outer;  ///< the root of the file
  Fields text;   ///< the language model's part; the root again when nothing is nested
  ModelConfig* model;
  AttentionFamily family = AttentionFamily::kHeads;
  std::string family_reason{};
  bool params_json = false;  ///< Mistral's own names

  [[nodiscard]] bool is_type(std::string_view prefix) const noexcept {
    return model->model_type.starts_with(prefix);
  }
  /// The part that has a value under one of the keys; the language model's own first.
  [[nodiscard]] const Fields& where(Keys keys) const noexcept { return text.has_any(keys) ? text : outer; }
  /// Where the experts are described: params.json keeps them in an object of their own.
  [[nodiscard]] Fields expert_fields() const {
    return params_json ? text.nested("moe").value_or(text) : text;
  }
  [[nodiscard]] bool is_longcat() const noexcept {
    return is_type("longcat") || model->architecture.starts_with("Longcat");
  }
};

/// What a layer does with the past, before widths are known.
enum class LayerRole : std::uint8_t { kFull, kWindow, kChunk, kRecurrent, kNone };

/// Nemotron-H: attention, recurrence and feed-forward are layers of their own.
enum class Block : std::uint8_t { kAttention, kRecurrent, kMlp, kMoe };

void read_identity(Reading& reading);  ///< model_type, architecture, family, dtype
void read_sizes(Reading& reading);     ///< layers, widths, heads, vocabulary, MTP
void read_mla(Reading& reading);       ///< latent widths, indexer
void read_recurrent(Reading& reading);
void read_compressed(Reading& reading);
void read_layers(Reading& reading);  ///< ModelConfig::layers
void read_moe(Reading& reading);
void read_ffn(Reading& reading);     ///< ModelConfig::ffn
void read_traits(Reading& reading);  ///< what follows from the model_type: norms, gates, biases
void read_rope(Reading& reading);
void read_quantization(Reading& reading);
void read_tower(Reading& reading);  ///< ModelConfig::tower, where its form is known
/// hf_quant_config.json, which older modelopt checkpoints keep beside a config.json without quantisation.
void read_quantization_file(std::string_view json_text, std::string_view origin, ModelConfig& model);

/// One role a decoder layer, then those of MTP layers where the file lists them.
[[nodiscard]] std::vector<LayerRole> layer_roles(const Reading& reading);
/// The roles a file gives as a list (layer_types, 1-based lists, patterns), or empty.
[[nodiscard]] std::vector<LayerRole> listed_roles(const Reading& reading);
/// The blocks of a model whose feed-forward layers are layers of their own, or empty; and those of one MTP
/// module.
[[nodiscard]] std::vector<Block> separate_blocks(const Reading& reading);
[[nodiscard]] std::vector<Block> separate_mtp_blocks(const Reading& reading);
/// The window in tokens of layers that have one; 0 with a note when it is set but off.
[[nodiscard]] std::int64_t window_size(const Reading& reading);
/// Which MLA layers keep index keys of their own: one flag a decoder layer.
[[nodiscard]] std::vector<bool> indexer_layers(const Reading& reading);
/// MHA, MQA or GQA.
[[nodiscard]] AttentionKind kind_of_heads(int q_heads, int kv_heads) noexcept;
/// The per-layer blocks of a NAS model.
void read_nas_layers(Reading& reading, const json::Array& blocks);

/// Models whose class says what their file does not.
[[nodiscard]] bool is_mla_name(std::string_view model_type, std::string_view architecture);
[[nodiscard]] bool kv_heads_default_to_heads(std::string_view model_type);
[[nodiscard]] bool is_known_type(std::string_view model_type);

}  // namespace mla
