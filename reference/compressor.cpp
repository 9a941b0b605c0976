// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "check.hpp"
#include "gather.hpp"
#include "input.hpp"
#include "layer_math.hpp"
#include "mla.hpp"
#include "mla/error.hpp"
#include "mla/index.hpp"
#include "mla/layer.hpp"
#include "parallel.hpp"

namespace mla {
namespace {

using reference::Arithmetic;
using reference::detail::Input;
using reference::detail::require_size;
using reference::detail::to_double;

template <class Scalar>
std::vector<double> compress_as(const LayerConfig& config, const LayerWeights& weights,
                                std::span<const double> hidden, std::int64_t tokens, const RopeTable& rope,
                                int threads) {
  const MlaDims& dims = config.dims;
  const std::int64_t width = dims.latent_width();
  std::vector<Scalar> rows = reference::detail::linear<Scalar>(
      Input<Scalar>(hidden).data(), tokens, config.hidden_size, Input<Scalar>(weights.kv_a_proj).data(),
      width, weights.kv_a_proj_bias, threads);
  reference::detail::normalize_rows(rows.data(), tokens, width, weights.kv_a_layernorm, config.kv_norm_eps);
  const auto multiplier = static_cast<Scalar>(config.kv_multiplier);
  const reference::detail::Rotation<Scalar> rotation(rope, config.rope_input, config.rope_output);
  for (std::int64_t i = 0; i < tokens; ++i) {
    Scalar* row = rows.data() + i * width;
    std::for_each(row, row + dims.kv_lora_rank, [&](Scalar& element) { element *= multiplier; });
    rotation.apply(i, row + dims.kv_lora_rank);
  }
  return to_double(std::move(rows));
}

template <class Scalar>
ExpandedKv decompress_as(const MlaDims& dims, std::span<const double> rows, std::int64_t tokens,
                         const UpProjections& up, int threads) {
  const std::int64_t H = dims.num_heads, V = dims.v_head_dim, L = dims.kv_lora_rank;
  const std::int64_t P = dims.qk_nope_head_dim, width = dims.head_width();
  const Input<Scalar> latent(rows), w_uk(up.w_uk), w_uv(up.w_uv);
  std::vector<Scalar> k(static_cast<std::size_t>(tokens * H * width)),
      v(static_cast<std::size_t>(tokens * H * V));
  reference::detail::parallel_for(H, threads, [&](std::int64_t h) {
    reference::detail::expand_keys(dims, latent.data(), tokens, w_uk.data() + h * P * L, k.data() + h * width,
                                   H * width);
    reference::detail::expand_values(dims, latent.data(), tokens, w_uv.data() + h * V * L, v.data() + h * V,
                                     H * V);
  });
  return {to_double(std::move(k)), to_double(std::move(v))};
}

}  // namespace

std::vector<double> compress(const LayerConfig& config, const LayerWeights& weights,
                             std::span<const double> hidden, const RopeTable& rope,
                             const reference::Options& options) {
  const std::int64_t tokens = reference::detail::token_count(config, hidden);
  const MlaDims& dims = config.dims;
  require_size("kv_a_proj", weights.kv_a_proj.size(), "[L+R, hidden]",
               {dims.latent_width(), config.hidden_size});
  if (!weights.kv_a_proj_bias.empty()) {
    require_size("kv_a_proj_bias", weights.kv_a_proj_bias.size(), "[L+R]", {dims.latent_width()});
  }
  require_size("kv_a_layernorm", weights.kv_a_layernorm.size(), "[L]", {dims.kv_lora_rank});
  reference::detail::require_rope(rope, tokens, dims.qk_rope_head_dim);
  return options.arithmetic == Arithmetic::kF64
             ? compress_as<double>(config, weights, hidden, tokens, rope, options.threads)
             : compress_as<float>(config, weights, hidden, tokens, rope, options.threads);
}

ExpandedKv decompress(const MlaDims& dims, std::span<const double> rows, const UpProjections& up,
                      const reference::Options& options) {
  validate(dims);
  const std::int64_t tokens = static_cast<std::int64_t>(rows.size()) / dims.latent_width();
  require_size("rows", rows.size(), "[S, L+R]", {tokens, dims.latent_width()});
  require_size("w_uk", up.w_uk.size(), "[H, P, L]",
               {dims.num_heads, dims.qk_nope_head_dim, dims.kv_lora_rank});
  require_size("w_uv", up.w_uv.size(), "[H, V, L]", {dims.num_heads, dims.v_head_dim, dims.kv_lora_rank});
  return options.arithmetic == Arithmetic::kF64
             ? decompress_as<double>(dims, rows, tokens, up, options.threads)
             : decompress_as<float>(dims, rows, tokens, up, options.threads);
}

void compress_and_cache(const LayerConfig& config, const LayerWeights& weights,
                        std::span<const double> hidden, const RopeTable& rope,
                        std::span<const std::int64_t> slot_mapping, const PagedLatentCache& cache,
                        const reference::Options& options) {
  const std::int64_t tokens = reference::detail::token_count(config, hidden);
  const MlaDims& dims = config.dims;
  const CacheLayout layout = cache_layout(cache.format, dims);
  reference::detail::require_cache(cache, layout);
  require_size("slot_mapping", slot_mapping.size(), "[S]", {tokens});
  // All slots are looked at before the first row is written: a bad call leaves the cache as it was.
  for (std::size_t i = 0; i < slot_mapping.size(); ++i) {
    const std::int64_t slot = slot_mapping[i];
    if (slot == kSkipSlot || (slot >= 0 && slot / cache.block_size < cache.num_blocks)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("slot_mapping[{}] is {}, but must be {} (skip) or a slot of the {} blocks of {}",
                            i, slot, kSkipSlot, cache.num_blocks, cache.block_size));
  }
  const std::vector<double> rows = compress(config, weights, hidden, rope, options);
  const auto L = static_cast<std::size_t>(dims.kv_lora_rank),
             R = static_cast<std::size_t>(dims.qk_rope_head_dim);
  for (std::size_t i = 0; i < slot_mapping.size(); ++i) {
    const std::int64_t slot = slot_mapping[i];
    if (slot == kSkipSlot) continue;
    const auto row = std::span(rows).subspan(i * (L + R), L + R);
    encode_row(layout, dims, row.first(L), row.last(R), cache.row(slot),
               layout.split() ? cache.k_pe_row(slot) : nullptr, cache.scale);
  }
}

std::vector<double> compress_kv_to_latent(const MlaDims& dims, std::span<const double> k,
                                          std::span<const double> v, std::span<const double> w_dkv,
                                          const reference::Options& options) {
  validate(dims);
  const std::int64_t k_width = std::int64_t{dims.num_heads} * dims.head_width();
  const std::int64_t v_width = std::int64_t{dims.num_heads} * dims.v_head_dim;
  const std::int64_t tokens = static_cast<std::int64_t>(k.size()) / k_width;
  require_size("k", k.size(), "[S, H, P+R]", {tokens, dims.num_heads, dims.head_width()});
  require_size("v", v.size(), "[S, H, V]", {tokens, dims.num_heads, dims.v_head_dim});
  require_size("w_dkv", w_dkv.size(), "[L, H (P+R) + H V]", {dims.kv_lora_rank, k_width + v_width});
  std::vector<double> joined;
  joined.reserve(k.size() + v.size());
  for (std::int64_t i = 0; i < tokens; ++i) {
    joined.insert(joined.end(), k.begin() + i * k_width, k.begin() + (i + 1) * k_width);
    joined.insert(joined.end(), v.begin() + i * v_width, v.begin() + (i + 1) * v_width);
  }
  const auto run = [&]<class Scalar>(Scalar) {
    return to_double(reference::detail::linear<Scalar>(Input<Scalar>(joined).data(), tokens,
                                                       k_width + v_width, Input<Scalar>(w_dkv).data(),
                                                       dims.kv_lora_rank, {}, options.threads));
  };
  return options.arithmetic == Arithmetic::kF64 ? run(double{}) : run(float{});
}

}  // namespace mla
