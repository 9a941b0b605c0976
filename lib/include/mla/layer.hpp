// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mla/cache.hpp"
#include "mla/dims.hpp"
#include "mla/export.h"
#include "mla/reference.hpp"

/// The whole MLA layer from hidden states, and its pieces: rotary embedding with YaRN, norms, projections,
/// compressor.
namespace mla {

// ---- rotary embedding -------------------------------------------------------------------------------------

/// Which channels form a rotated pair.
enum class RopeLayout : std::uint8_t {
  kInterleaved,  ///< (2i, 2i+1): DeepSeek, vLLM
  kHalfSplit,    ///< (i, i + R/2): MiniCPM3, and how transformers writes DeepSeek-V3's result
};

/// The three published readings of the same YaRN configuration; they differ in amplitude and in the softmax
/// factor. With g(f, m) = 1 if f <= 1 else 0.1 m ln f + 1:
/// kDeepSeek      frequencies change only if max_seq_len > original; amplitude 1; scale factor g(f, mscale)^2
///                (mscale 1 if absent), same condition
/// kTransformers  amplitude = attention_factor if given, else g(f, mscale) / g(f, mscale_all_dim) if both are
///                truthy, else g(f, 1); scale factor g(f, mscale_all_dim)^2 if mscale_all_dim is truthy
/// kVllm          amplitude = g(f, mscale) / g(f, mscale_all_dim) * attn_factor with defaults 1, 0, 1;
///                scale factor g(f, mscale_all_dim)^2
enum class YarnRule : std::uint8_t { kDeepSeek, kTransformers, kVllm };

struct RopeParameters {
  int dim = 64;  ///< R
  double theta = 10000.0;
  bool yarn = false;
  double factor = 1.0;
  std::int64_t original_max_position = 4096;
  std::int64_t max_seq_len = 0;  ///< kDeepSeek's switch; 0: factor * original
  double beta_fast = 32.0, beta_slow = 1.0;
  std::optional<double> mscale{}, mscale_all_dim{}, attention_factor{};
};

struct RopeTable {
  int half = 0;                  ///< R / 2
  std::vector<double> cos, sin;  ///< [positions, R/2], amplitude included
  double amplitude = 1.0;
  double softmax_scale_factor = 1.0;  ///< times (P+R)^-1/2 gives the softmax scale
};

/// Angles in double precision unless `f32_angles`: then position * inv_freq and cos/sin are single precision,
/// as the engines compute them (a different function at long positions: about 4e-3 rad at 32k).
[[nodiscard]] MLA_EXPORT RopeTable make_rope_table(const RopeParameters& parameters, YarnRule rule,
                                                   std::span<const std::int64_t> positions,
                                                   bool f32_angles = false);

/// Rotates x [rows, R] in place, row r by table row r / rows_per_position (R = 0: nothing to do). Pairs are
/// taken by `input`, written by `output`.
MLA_EXPORT void apply_rope(std::span<double> x, const RopeTable& table, std::int64_t rows,
                           std::int64_t rows_per_position, RopeLayout input, RopeLayout output);

// ---- the layer --------------------------------------------------------------------------------------------

/// Weights in double, names of transformers, row-major [out, in].
struct LayerWeights {
  std::vector<double> q_a_proj, q_a_proj_bias, q_a_layernorm;  ///< [Lq, hidden], [Lq] or empty, [Lq]
  std::vector<double> q_b_proj;                                ///< [H (P+R), Lq]
  std::vector<double> q_proj;  ///< [H (P+R), hidden]; instead of q_a/q_b when q_lora_rank is null
  std::vector<double> kv_a_proj, kv_a_proj_bias;  ///< [L+R, hidden], [L+R] or empty
  std::vector<double> kv_a_layernorm;             ///< [L]
  std::vector<double> kv_b_proj;  ///< [H (P+V), L]: per head first P rows (W_UK), then V rows (W_UV)
  std::vector<double> o_proj, o_proj_bias;  ///< [hidden, H V], [hidden] or empty
};

struct LayerConfig {
  MlaDims dims;
  int hidden_size = 0;
  std::optional<int> q_lora_rank;
  /// transformers builds both latent norms with 1e-6 whatever the config says.
  double q_norm_eps = 1e-6, kv_norm_eps = 1e-6;
  RopeLayout rope_input = RopeLayout::kInterleaved;
  RopeLayout rope_output = RopeLayout::kInterleaved;
  /// LongCat: sqrt(hidden / Lq) on q and sqrt(hidden / L) on the normed latent.
  double q_multiplier = 1.0, kv_multiplier = 1.0;
};

/// Splits kv_b_proj into W_UK [H, P, L] and W_UV [H, V, L].
struct UpProjections {
  std::vector<double> w_uk, w_uv;
};
[[nodiscard]] MLA_EXPORT UpProjections split_kv_b(const MlaDims& dims, std::span<const double> kv_b_proj);

/// x * rsqrt(mean(x^2) + eps) * weight, row by row, width = weight.size().
[[nodiscard]] MLA_EXPORT std::vector<double> rms_norm(std::span<const double> x,
                                                      std::span<const double> weight, double eps);

/// hidden [S, hidden] -> q [S, H, P+R], rotated.
[[nodiscard]] MLA_EXPORT std::vector<double> project_query(const LayerConfig& config,
                                                           const LayerWeights& weights,
                                                           std::span<const double> hidden,
                                                           const RopeTable& rope,
                                                           const reference::Options& options = {});

// ---- compressor -------------------------------------------------------------------------------------------

/// hidden [S, hidden] -> rows [S, L+R] = [RMSNorm(c) | RoPE(k_pe)]: what goes into the cache.
[[nodiscard]] MLA_EXPORT std::vector<double> compress(const LayerConfig& config, const LayerWeights& weights,
                                                      std::span<const double> hidden, const RopeTable& rope,
                                                      const reference::Options& options = {});

/// rows [S, L+R] -> K [S, H, P+R] and V [S, H, V].
struct ExpandedKv {
  std::vector<double> k, v;
};
[[nodiscard]] MLA_EXPORT ExpandedKv decompress(const MlaDims& dims, std::span<const double> rows,
                                               const UpProjections& up,
                                               const reference::Options& options = {});

/// compress, then write row i to slot_mapping[i] of the cache (kSkipSlot skips). A bad slot is found before
/// the first row is written.
MLA_EXPORT void compress_and_cache(const LayerConfig& config, const LayerWeights& weights,
                                   std::span<const double> hidden, const RopeTable& rope,
                                   std::span<const std::int64_t> slot_mapping, const PagedLatentCache& cache,
                                   const reference::Options& options = {});

/// The source documents' other form, C = W_DKV concat(K, V) with W_DKV [L, H (P+R) + H V]: no released model
/// compresses this way (the down-projection takes the hidden state); offered for completeness. k [S, H, P+R],
/// v [S, H, V] -> [S, L].
[[nodiscard]] MLA_EXPORT std::vector<double> compress_kv_to_latent(const MlaDims& dims,
                                                                   std::span<const double> k,
                                                                   std::span<const double> v,
                                                                   std::span<const double> w_dkv,
                                                                   const reference::Options& options = {});

/// One request of S new tokens after `past` cached rows ([past, L+R], may be empty), causal.
struct LayerStep {
  std::vector<double> out;        ///< [S, hidden]
  std::vector<double> attention;  ///< [S, H, V], before o_proj
  std::vector<double> lse;        ///< [S, H]
  std::vector<double> rows;       ///< [S, L+R] the new cache rows
  std::vector<double> q;          ///< [S, H, P+R]
};
enum class LayerForm : std::uint8_t { kExpanded, kAbsorbed };
[[nodiscard]] MLA_EXPORT LayerStep layer_forward(const LayerConfig& config, const LayerWeights& weights,
                                                 std::span<const double> hidden, std::span<const double> past,
                                                 const RopeTable& rope, double softmax_scale, LayerForm form,
                                                 const reference::Visibility& visible = {},
                                                 const reference::Options& options = {});

}  // namespace mla
