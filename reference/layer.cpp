// SPDX-License-Identifier: Apache-2.0
#include "mla/layer.hpp"

#include <algorithm>

#include "check.hpp"
#include "input.hpp"
#include "layer_math.hpp"

namespace mla {
namespace {

using reference::Arithmetic;
using reference::detail::Input;
using reference::detail::require_at_least;
using reference::detail::require_size;
using reference::detail::to_double;

void require_query_weights(const LayerConfig& config, const LayerWeights& weights) {
  const std::int64_t width = std::int64_t{config.dims.num_heads} * config.dims.head_width();
  if (!config.q_lora_rank) {
    require_size("q_proj", weights.q_proj.size(), "[H (P+R), hidden]", {width, config.hidden_size});
    return;
  }
  const std::int64_t rank = *config.q_lora_rank;
  require_size("q_a_proj", weights.q_a_proj.size(), "[Lq, hidden]", {rank, config.hidden_size});
  if (!weights.q_a_proj_bias.empty())
    require_size("q_a_proj_bias", weights.q_a_proj_bias.size(), "[Lq]", {rank});
  require_size("q_a_layernorm", weights.q_a_layernorm.size(), "[Lq]", {rank});
  require_size("q_b_proj", weights.q_b_proj.size(), "[H (P+R), Lq]", {width, rank});
}

template <class Scalar>
std::vector<double> project(const LayerConfig& config, const LayerWeights& weights,
                            std::span<const double> hidden, std::int64_t tokens, const RopeTable& rope,
                            int threads) {
  const auto linear = reference::detail::linear<Scalar>;
  const MlaDims& dims = config.dims;
  const std::int64_t width = std::int64_t{dims.num_heads} * dims.head_width();
  const Input<Scalar> x(hidden);
  std::vector<Scalar> q;
  if (config.q_lora_rank) {
    const std::int64_t rank = *config.q_lora_rank;
    std::vector<Scalar> compressed =
        linear(x.data(), tokens, config.hidden_size, Input<Scalar>(weights.q_a_proj).data(), rank,
               weights.q_a_proj_bias, threads);
    reference::detail::normalize_rows(compressed.data(), tokens, rank, weights.q_a_layernorm,
                                      config.q_norm_eps);
    q = linear(compressed.data(), tokens, rank, Input<Scalar>(weights.q_b_proj).data(), width, {}, threads);
  } else {
    q = linear(x.data(), tokens, config.hidden_size, Input<Scalar>(weights.q_proj).data(), width, {},
               threads);
  }
  const auto multiplier = static_cast<Scalar>(config.q_multiplier);
  for (Scalar& element : q) element *= multiplier;
  const reference::detail::Rotation<Scalar> rotation(rope, config.rope_input, config.rope_output);
  for (std::int64_t row = 0; row < tokens * dims.num_heads; ++row) {
    rotation.apply(row / dims.num_heads, q.data() + row * dims.head_width() + dims.qk_nope_head_dim);
  }
  return to_double(std::move(q));
}

template <class Scalar>
std::vector<double> output(const LayerConfig& config, const LayerWeights& weights,
                           std::span<const double> attention, std::int64_t tokens, int threads) {
  const std::int64_t width = std::int64_t{config.dims.num_heads} * config.dims.v_head_dim;
  return to_double(reference::detail::linear<Scalar>(Input<Scalar>(attention).data(), tokens, width,
                                                     Input<Scalar>(weights.o_proj).data(), config.hidden_size,
                                                     weights.o_proj_bias, threads));
}

}  // namespace

UpProjections split_kv_b(const MlaDims& dims, std::span<const double> kv_b_proj) {
  validate(dims);
  const std::int64_t H = dims.num_heads, P = dims.qk_nope_head_dim, V = dims.v_head_dim,
                     L = dims.kv_lora_rank;
  require_size("kv_b_proj", kv_b_proj.size(), "[H (P+V), L]", {H * (P + V), L});
  UpProjections up;
  up.w_uk.reserve(static_cast<std::size_t>(H * P * L));
  up.w_uv.reserve(static_cast<std::size_t>(H * V * L));
  for (std::int64_t h = 0; h < H; ++h) {
    const double* head = kv_b_proj.data() + h * (P + V) * L;
    up.w_uk.insert(up.w_uk.end(), head, head + P * L);
    up.w_uv.insert(up.w_uv.end(), head + P * L, head + (P + V) * L);
  }
  return up;
}

std::vector<double> rms_norm(std::span<const double> x, std::span<const double> weight, double eps) {
  require_at_least("the width of the norm's weight", static_cast<std::int64_t>(weight.size()), 1);
  const auto width = static_cast<std::int64_t>(weight.size());
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / width;
  require_size("x", x.size(), "[rows, width]", {rows, width});
  std::vector<double> result(x.begin(), x.end());
  reference::detail::normalize_rows(result.data(), rows, width, weight, eps);
  return result;
}

std::vector<double> project_query(const LayerConfig& config, const LayerWeights& weights,
                                  std::span<const double> hidden, const RopeTable& rope,
                                  const reference::Options& options) {
  const std::int64_t tokens = reference::detail::token_count(config, hidden);
  require_query_weights(config, weights);
  reference::detail::require_rope(rope, tokens, config.dims.qk_rope_head_dim);
  return options.arithmetic == Arithmetic::kF64
             ? project<double>(config, weights, hidden, tokens, rope, options.threads)
             : project<float>(config, weights, hidden, tokens, rope, options.threads);
}

LayerStep layer_forward(const LayerConfig& config, const LayerWeights& weights,
                        std::span<const double> hidden, std::span<const double> past, const RopeTable& rope,
                        double softmax_scale, LayerForm form, const reference::Visibility& visible,
                        const reference::Options& options) {
  const std::int64_t tokens = reference::detail::token_count(config, hidden);
  const MlaDims& dims = config.dims;
  const std::int64_t cached = static_cast<std::int64_t>(past.size()) / dims.latent_width();
  require_size("past", past.size(), "[past, L+R]", {cached, dims.latent_width()});
  reference::detail::require_between("tokens, cached and new,", cached + tokens, 0, INT32_MAX);
  const std::int64_t width = std::int64_t{dims.num_heads} * dims.v_head_dim;
  require_size("o_proj", weights.o_proj.size(), "[hidden, H V]", {config.hidden_size, width});
  if (!weights.o_proj_bias.empty()) {
    require_size("o_proj_bias", weights.o_proj_bias.size(), "[hidden]", {config.hidden_size});
  }
  const UpProjections up = split_kv_b(dims, weights.kv_b_proj);

  LayerStep step;
  step.q = project_query(config, weights, hidden, rope, options);
  step.rows = compress(config, weights, hidden, rope, options);
  std::vector<double> latent(past.begin(), past.end());
  latent.insert(latent.end(), step.rows.begin(), step.rows.end());
  const Request request{static_cast<std::int32_t>(tokens), static_cast<std::int32_t>(cached + tokens)};
  const reference::MlaProblem problem{dims,    {&request, 1}, step.q,  latent,
                                      up.w_uk, up.w_uv,       visible, softmax_scale};
  reference::AttentionOutput attention = form == LayerForm::kExpanded
                                             ? reference::mla_expanded(problem, options)
                                             : reference::mla_absorbed(problem, options);
  step.attention = std::move(attention.out);
  step.lse = std::move(attention.lse);
  step.out = options.arithmetic == Arithmetic::kF64
                 ? output<double>(config, weights, step.attention, tokens, options.threads)
                 : output<float>(config, weights, step.attention, tokens, options.threads);
  return step;
}

}  // namespace mla
