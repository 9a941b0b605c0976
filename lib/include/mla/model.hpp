// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/dims.hpp"
#include "mla/export.h"
#include "mla/layer.hpp"

namespace mla {

/// How one layer keeps its past.
enum class AttentionKind : std::uint8_t {
  kMha,         ///< as many KV heads as query heads
  kGqa,         ///< fewer
  kMqa,         ///< one
  kMla,         ///< one latent row [L + R] a token
  kCompressed,  ///< DeepSeek-V4's compressed entries + window + states (its own formula)
  kRecurrent,   ///< linear attention / state space: a fixed state a sequence, nothing a token
  kNone,        ///< no attention in this layer
};
[[nodiscard]] MLA_EXPORT std::string_view name_of(AttentionKind kind) noexcept;

/// One cache-bearing unit, in model order. LongCat has two a decoder layer.
struct LayerCache {
  AttentionKind kind = AttentionKind::kGqa;
  int model_layer = 0;           ///< 0-based decoder layer
  int kv_heads = 0;              ///< not used by kMla
  int head_dim_k = 0;            ///< not used by kMla
  int head_dim_v = 0;
  std::int64_t window = 0;       ///< sliding window in tokens, 0: full length
  bool indexer = false;          ///< stores its own sparse index keys (132 B a token)
  bool mtp = false;              ///< belongs to a multi-token-prediction module, cached only when that is on
  int compress_ratio = 0;        ///< kCompressed: tokens an entry stands for (4, 128); 0: window only
  std::int64_t state_bytes = 0;  ///< kRecurrent: bytes a sequence keeps in this layer
};

/// Sparse (top-k) attention indexer, as in DeepSeek-V3.2 and GLM-5.
struct IndexerConfig {
  int topk = 0, num_heads = 0, head_dim = 0;
  int key_pool = 1;  ///< tokens that share one index key (GLM-5.3: 4)
};

struct MoeConfig {
  int num_experts = 0, num_shared_experts = 0, experts_per_token = 0;
  int moe_intermediate_size = 0;
  int first_dense_layers = 0;   ///< leading layers with a dense FFN
  int moe_layer_frequency = 1;  ///< every n-th layer after those is MoE
  int zero_experts = 0;         ///< LongCat: experts without weights
};

/// How one field was read: for the user who asks "how did it get that?".
struct FieldNote {
  std::string field;  ///< our name, e.g. "kv_lora_rank"
  std::string value;
  std::string from;   ///< "text_config.kv_lora_rank", "default of MiniCPM3Config", "derived: hidden_size / heads", ...
};

/// A model as far as its cache, weights and attention layer go.
struct ModelConfig {
  std::string name, title;        ///< "deepseek-v3", "DeepSeek-V3 / R1 / V3.1"
  std::string model_type, architecture;
  std::string source, checked, path;
  int num_layers = 0;             ///< decoder layers (main model)
  int num_mtp_layers = 0;
  int hidden_size = 0, num_heads = 0, num_kv_heads = 0;
  int head_dim = 0;               ///< not used for MLA
  int intermediate_size = 0, vocab_size = 0;
  std::int64_t max_position = 0;
  bool tie_word_embeddings = false, attention_bias = false;
  double rms_norm_eps = 1e-6;
  std::optional<MlaDims> mla;     ///< set iff the model is MLA on at least one layer
  std::optional<int> q_lora_rank; ///< empty: a single q_proj
  std::optional<IndexerConfig> indexer;
  std::optional<MoeConfig> moe;
  RopeParameters rope;
  RopeLayout rope_layout = RopeLayout::kInterleaved;
  std::vector<LayerCache> layers; ///< every cache-bearing unit, MTP ones last
  std::string torch_dtype;        ///< as the file says, or empty
  std::string quantization;       ///< "fp8 128x128", "awq int4 g128", ... or empty
  std::vector<FieldNote> notes;

  [[nodiscard]] int count(AttentionKind kind, bool with_mtp = false) const noexcept {
    int n = 0;
    for (const LayerCache& l : layers) n += (l.kind == kind && (with_mtp || !l.mtp)) ? 1 : 0;
    return n;
  }
};

/// An answer with its reason: "is it MLA", "is it sparse".
struct Finding {
  bool yes = false;
  std::string reason;
};
[[nodiscard]] MLA_EXPORT Finding is_mla(const ModelConfig& model);
/// True only for top-k index models; a sliding window is reported in the reason but is not this sparsity.
[[nodiscard]] MLA_EXPORT Finding is_sparse(const ModelConfig& model);

/// Reads a Hugging Face config.json, a Mistral params.json, or our own file (which wraps one under "config").
/// `origin` names the text in messages. Throws kParse for malformed JSON or wrong types (naming the field) and
/// kInvalidArgument where a needed field is missing or null: it never falls back to GQA in silence.
[[nodiscard]] MLA_EXPORT ModelConfig parse_model(std::string_view json_text, std::string_view origin);

/// `what`: a name or alias found in <config dir>/models, a path to a file or to a folder holding config.json, or "-"
/// for `stdin_text`. Throws with a did-you-mean hint.
[[nodiscard]] MLA_EXPORT ModelConfig load_model(std::string_view what, std::string_view stdin_text = {});

/// All models of configs/models, by name.
[[nodiscard]] MLA_EXPORT std::vector<ModelConfig> list_models();

}  // namespace mla
