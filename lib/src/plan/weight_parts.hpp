// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/model.hpp"

/// The matrices of a model, by decoder layer, as its config implies them.
namespace mla::capacity {

/// Which entry of a WeightScheme stores it.
enum class Role : std::uint8_t {
  kAttention,
  kDense,
  kShared,
  kExperts,
  kHead,
  kRouter,
  kEmbedding,
  kVector,  ///< bf16 always
  kTower,   ///< bf16 always
};

/// How ranks share it.
enum class Cut : std::uint8_t {
  kWhole,    ///< on every rank
  kTensor,   ///< over tp
  kKvHeads,  ///< over tp, at least one KV head a rank
  kExperts,  ///< over the expert ranks, then over tp x dp / ep
  kVocab,    ///< over tp, on the stage that has it
};

struct WeightPart {
  std::string_view key;    ///< "attention.q_b"
  std::string_view title;  ///< "q_b: latent query to heads"
  Role role = Role::kAttention;
  Cut cut = Cut::kWhole;
  std::int64_t copies = 1;  ///< matrices of that shape in a layer (experts x gate, up, down)
  std::int64_t rows = 0, cols = 0;
  int kv_heads = 0;  ///< kKvHeads
  [[nodiscard]] friend bool operator==(const WeightPart&, const WeightPart&) = default;
};

/// Decoder layer `layer` of the main model: mixers, FFNs, norms.
[[nodiscard]] std::vector<WeightPart> layer_weights(const ModelConfig& model, int layer);
/// All multi-token-prediction modules: layers, eh_proj and norms; embedding and head are the main model's.
[[nodiscard]] std::vector<WeightPart> mtp_weights(const ModelConfig& model);
[[nodiscard]] WeightPart embedding_weights(const ModelConfig& model);
[[nodiscard]] WeightPart head_weights(const ModelConfig& model);
[[nodiscard]] WeightPart final_norm(const ModelConfig& model);
/// The vision tower and its projector, on the first stage; empty where its config is not known.
[[nodiscard]] MLA_EXPORT std::vector<WeightPart> tower_weights(const ModelConfig& model);
/// The bytes of weights_on_rank() without its lines: for searches over many layouts.
[[nodiscard]] std::int64_t weight_bytes_on_rank(const ModelConfig& model, const WeightScheme& scheme,
                                                const Layout& layout, int stage, const EngineRules& engine,
                                                bool with_mtp);
/// What the config has but this does not count, as sentences.
[[nodiscard]] MLA_EXPORT std::vector<std::string> weight_gaps(const ModelConfig& model);

}  // namespace mla::capacity
