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
  int model_layer = 0;  ///< 0-based decoder layer
  int q_heads = 0;      ///< query heads (a window layer may have another number than a full one)
  int kv_heads = 0;     ///< not used by kMla
  int head_dim_k = 0;   ///< not used by kMla
  int head_dim_v = 0;
  std::int64_t window = 0;  ///< sliding window in tokens, 0: full length
  bool chunked = false;     ///< `window` is a chunk (Llama-4): tokens see back to the last multiple of it
  bool indexer = false;     ///< stores its own sparse index keys (132 B a token)
  bool mtp = false;         ///< belongs to a multi-token-prediction module, cached only when that is on
  int compress_ratio = 0;   ///< kCompressed: tokens an entry stands for (4, 128); 0: window only
  std::int64_t state_bytes =
      0;  ///< kRecurrent: bytes a sequence keeps in this layer (= RecurrentConfig::state_bytes())
};

/// Sparse (top-k) attention indexer, as in DeepSeek-V3.2 and GLM-5.
struct IndexerConfig {
  int topk = 0, num_heads = 0, head_dim = 0;
  int key_pool = 1;  ///< tokens that share one index key (GLM-5.3: 4)
};

/// Which recurrence a kRecurrent layer runs. All keep a state matrix a head and, but for kLightning, a short
/// convolution.
enum class RecurrentKind : std::uint8_t { kKda, kGatedDelta, kMamba1, kMamba2, kLightning };
[[nodiscard]] MLA_EXPORT std::string_view name_of(RecurrentKind kind) noexcept;

/// The recurrent layers of a hybrid model (all of one shape). Kimi-Linear: 32 heads of 128 x 128.
struct RecurrentConfig {
  RecurrentKind kind = RecurrentKind::kKda;
  int num_k_heads = 0;    ///< key heads; Mamba-2: B/C groups
  int num_v_heads = 0;    ///< heads that keep a state
  int head_dim_k = 0;     ///< rows of a head's state; Mamba: the state size N
  int head_dim_v = 0;     ///< columns of a head's state; Mamba-1: 1 (every channel is a head)
  int conv_channels = 0;  ///< channels the short convolution remembers
  int conv_kernel = 0;    ///< its taps; kernel - 1 columns are kept
  int state_element_bytes = 4, conv_element_bytes = 2;
  bool full_rank_gate =
      false;  ///< KDA: the output gate is one [H D, hidden] matrix (K3), not a low-rank pair
  [[nodiscard]] std::int64_t recurrence_bytes() const noexcept {
    return std::int64_t{num_v_heads} * head_dim_k * head_dim_v * state_element_bytes;
  }
  [[nodiscard]] std::int64_t conv_bytes() const noexcept {
    return conv_kernel > 1 ? std::int64_t{conv_channels} * (conv_kernel - 1) * conv_element_bytes : 0;
  }
  /// Bytes a sequence keeps in one layer on an unsharded rank.
  [[nodiscard]] std::int64_t state_bytes() const noexcept { return recurrence_bytes() + conv_bytes(); }
};

/// DeepSeek-V4's attention: one KV head of head_dim, entries compressed by LayerCache::compress_ratio, a
/// window, and a low-rank grouped output projection.
struct CompressedConfig {
  int head_dim = 0;         ///< 512 = 448 + rope_head_dim
  int rope_head_dim = 0;    ///< 64
  std::int64_t window = 0;  ///< uncompressed tokens every layer keeps
  int o_lora_rank = 0, o_groups = 0;
  int hyper_connections = 0;  ///< hc_mult: parallel residual streams
  int hash_layers = 0;        ///< leading MoE layers routed by token hash (no router matrix)
  double compress_rope_theta = 0;
};

struct MoeConfig {
  int num_experts = 0, num_shared_experts = 0, experts_per_token = 0;
  int moe_intermediate_size = 0;
  int shared_intermediate_size = 0;  ///< width of all shared experts together; 0: none
  int latent_size =
      0;  ///< routed experts work in this width instead of hidden_size (K3, Nemotron-3); 0: hidden_size
  bool shared_gate = false;  ///< a [1, hidden] gate scales the shared expert (Qwen)
  bool router_bias = false;  ///< one correction bias an expert
  int router_groups = 1, router_groups_used = 1;
  int first_dense_layers = 0;   ///< leading layers with a dense FFN
  int moe_layer_frequency = 1;  ///< every n-th layer after those is MoE
  int zero_experts = 0;         ///< LongCat: experts without weights
};

/// The feed-forward part of one decoder layer.
struct LayerFfn {
  int model_layer = 0;
  int dense_count = 0;  ///< dense FFNs (LongCat: two a layer); may stand beside MoE (Gemma-4-26B)
  int dense_intermediate_size = 0;
  bool moe = false;  ///< routed experts as in MoeConfig
  bool mtp = false;
};

/// Norms on q and k after their projection (not MLA's latent norms, which every MLA layer has).
enum class QkNorm : std::uint8_t { kNone, kPerHead, kPerLayer };

/// A vision tower whose weights follow from its config: transformer layers over patches (MoonViT), and a projector
/// that joins `merged_patches` patches and maps them to the language model's width.
struct TowerConfig {
  int layers = 0, hidden_size = 0, intermediate_size = 0;
  int patch = 0;           ///< side, in pixels of 3 channels
  int positions = 0;       ///< learned position embeddings
  int merged_patches = 1;  ///< patches that become one token
};

/// What `quantization_config` (or hf_quant_config.json) says about the stored weights.
struct QuantizationConfig {
  std::string method;  ///< as written: "fp8", "awq", "compressed-tensors", "modelopt", "mxfp4", ...
  std::string format;  ///< ours: "fp8", "int8", "int4", "mxfp4", "mxfp8", "nvfp4", "fp4"; empty: not known
  double weight_bits = 16;       ///< bits of one stored weight, without scales
  int group_size = 0;            ///< weights along K that share a scale; 0: per block, channel or tensor
  int block_n = 0, block_k = 0;  ///< scale blocks, 128 x 128; 0: none
  int scale_bits = 0;            ///< bits of one scale: 32, 16 or 8
  bool zero_points = false;      ///< one more value of weight_bits a group (AWQ, asymmetric GPTQ)
  std::string expert_format;     ///< routed experts where they differ from the rest (V4: "fp4")
  int kv_cache_bits = 0;         ///< 8 where the checkpoint asks for an fp8 cache; 0: says nothing
  bool experts_only = false;     ///< only routed experts are stored so (gpt-oss mxfp4)
  std::vector<std::string> converted;  ///< mixed precision: the only quantised modules; empty: all
  std::vector<std::string>
      not_converted;  ///< modules kept in torch_dtype: names, globs or "re:..." as written
  /// Whether the module is stored quantised, e.g. "model.layers.3.self_attn.o_proj", "lm_head". Linear layers
  /// only: embeddings and norms never are.
  [[nodiscard]] MLA_EXPORT bool covers(std::string_view module) const;
};

/// How one field was read: for the user who asks "how did it get that?".
struct FieldNote {
  std::string field;  ///< our name, e.g. "kv_lora_rank"
  std::string value;
  std::string
      from;  ///< "text_config.kv_lora_rank", "default of MiniCPM3Config", "derived: hidden_size / heads", ...
};

/// A model as far as its cache, weights and attention layer go.
struct ModelConfig {
  std::string name, title;  ///< "deepseek-v3", "DeepSeek-V3 / R1 / V3.1"
  std::string model_type, architecture;
  std::string source, checked, path;
  std::vector<std::string> aliases;  ///< other names load_model takes
  std::string note;                  ///< what the file's author wants the user to know, or empty
  int num_layers = 0;                ///< decoder layers (main model)
  int num_mtp_layers = 0;
  int hidden_size = 0, num_heads = 0, num_kv_heads = 0;
  int head_dim = 0;  ///< not used for MLA
  int intermediate_size = 0, vocab_size = 0;
  std::int64_t max_position = 0;
  bool tie_word_embeddings = false, attention_bias = false;
  double rms_norm_eps = 1e-6;
  std::optional<MlaDims> mla;      ///< set iff the model is MLA on at least one layer
  std::optional<int> q_lora_rank;  ///< empty: a single q_proj
  std::optional<IndexerConfig> indexer;
  std::optional<MoeConfig> moe;
  RopeParameters rope;
  RopeLayout rope_layout = RopeLayout::kInterleaved;
  std::vector<LayerCache> layers;  ///< every cache-bearing unit, MTP ones last
  std::vector<LayerFfn> ffn;       ///< every decoder layer in order, MTP ones last
  bool ffn_gated = true;           ///< three matrices (gate, up, down) an FFN, else two
  bool mlp_bias = false;
  bool qkv_bias =
      false;  ///< bias on q, k, v (Qwen2); `attention_bias` is the file's own word, o_proj included
  QkNorm qk_norm = QkNorm::kNone;
  int norms_per_layer = 2;       ///< vectors of hidden_size a decoder layer (Gemma: 4)
  bool attention_sinks = false;  ///< one learned sink logit a query head
  bool attention_gate =
      false;  ///< output gate: q_proj twice as wide, or a gate matrix of the same size (Qwen3.5, K3)
  bool attention_gate_per_head =
      false;            ///< that gate is one number a head: a [heads, hidden] matrix (Ling-3, Step)
  bool k_eq_v = false;  ///< full layers have no v_proj: K is used as V (Gemma-4); engines still cache both
  bool mla_use_nope = false;  ///< the rope part of the row is stored but not rotated (Kimi-K3)
  double mla_q_multiplier = 1.0, mla_kv_multiplier = 1.0;  ///< LongCat: sqrt(hidden / Lq), sqrt(hidden / L)
  std::optional<RecurrentConfig> recurrent;                ///< set iff a layer is kRecurrent
  std::optional<CompressedConfig> compressed;              ///< set iff a layer is kCompressed
  std::string
      rope_type;  ///< "default", "yarn", "llama3", "linear", ... ; only yarn is in `rope` beyond theta
  double partial_rotary_factor = 1.0;
  bool multimodal = false;           ///< the text part of a model that also has a vision or audio tower
  std::optional<TowerConfig> tower;  ///< of those whose weights can be counted
  std::optional<QuantizationConfig> quantization_config;
  std::string torch_dtype;   ///< as the file says, or empty
  std::string quantization;  ///< "fp8 128x128", "awq int4 g128", ... or empty
  std::vector<FieldNote> notes;
  std::vector<std::string> warnings;  ///< sentences: what was read on a guess that could change an answer

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
/// `origin` names the text in messages. Throws kParse for malformed JSON or wrong types (naming the field)
/// and kInvalidArgument where a needed field is missing or null: it never falls back to GQA in silence.
[[nodiscard]] MLA_EXPORT ModelConfig parse_model(std::string_view json_text, std::string_view origin);

/// `what`: a name or alias found in <config dir>/models, a path to a file or to a folder holding config.json,
/// or "-" for `stdin_text`. Throws with a did-you-mean hint.
[[nodiscard]] MLA_EXPORT ModelConfig load_model(std::string_view what, std::string_view stdin_text = {});

/// All models of configs/models, by name.
[[nodiscard]] MLA_EXPORT std::vector<ModelConfig> list_models();

}  // namespace mla
