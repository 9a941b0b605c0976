// SPDX-License-Identifier: Apache-2.0
#include "mla.hpp"

#include <algorithm>

#include "check.hpp"
#include "gather.hpp"
#include "parallel.hpp"

namespace mla::reference {
namespace {

using Form = detail::Result<double> (*)(const detail::MlaCall<double>&);
using FloatForm = detail::Result<float> (*)(const detail::MlaCall<float>&);

template <class Scalar, class Attention>
AttentionOutput run(const MlaProblem& p, const detail::Batch& batch, const Options& options,
                    Attention attention) {
  const detail::Input<Scalar> q(p.q), w_uk(p.w_uk), w_uv(p.w_uv);
  const detail::Input<Scalar> rows = detail::gather_rows<Scalar>(batch, p.latent, p.dims.latent_width());
  auto result = attention({p.dims, batch, q.data(), rows.data(), w_uk.data(), w_uv.data(),
                           static_cast<Scalar>(p.softmax_scale), options.num_splits, options.threads,
                           options.row_stats});
  return {detail::to_double(std::move(result.out)), detail::to_double(std::move(result.lse)),
          std::move(result.stats)};
}

AttentionOutput run_checked(const MlaProblem& p, const Options& options, bool head_space, Form form,
                            FloatForm float_form) {
  validate(p.dims);
  detail::require_at_least("num_splits", options.num_splits, 1);
  detail::require_softmax_scale(p.softmax_scale);
  const detail::Batch batch = detail::make_batch(p.batch, p.visible);
  const auto& [H, L, R, P, V] = p.dims;
  detail::require_size("latent", p.latent.size(), "[sum kv_len, L+R]", {batch.keys, L + R});
  if (head_space) {
    detail::require_size("q", p.q.size(), "[tokens, H, P+R]", {batch.tokens, H, P + R});
    detail::require_size("w_uk", p.w_uk.size(), "[H, P, L]", {H, P, L});
    detail::require_size("w_uv", p.w_uv.size(), "[H, V, L]", {H, V, L});
  } else {
    detail::require_size("q", p.q.size(), "[tokens, H, L+R]", {batch.tokens, H, L + R});
  }
  return options.arithmetic == Arithmetic::kF64 ? run<double>(p, batch, options, form)
                                                : run<float>(p, batch, options, float_form);
}

/// body(head, first token, tokens) in parallel over heads and pieces of 64 tokens.
template <class Body>
void for_each_head(const MlaDims& dims, std::int64_t tokens, int threads, Body body) {
  constexpr std::int64_t kPiece = 64;
  const std::int64_t pieces = (tokens + kPiece - 1) / kPiece;
  detail::parallel_for(pieces * dims.num_heads, threads, [&](std::int64_t t) {
    const std::int64_t first = t / dims.num_heads * kPiece;
    body(static_cast<int>(t % dims.num_heads), first, std::min(kPiece, tokens - first));
  });
}

template <class Scalar>
std::vector<double> absorb(const MlaDims& dims, std::span<const double> q, std::span<const double> w_uk,
                           std::int64_t tokens, int threads) {
  const detail::Input<Scalar> input(q), weights(w_uk);
  std::vector<Scalar> absorbed(static_cast<std::size_t>(tokens * dims.num_heads * dims.latent_width()));
  for_each_head(dims, tokens, threads, [&](int head, std::int64_t first, std::int64_t count) {
    detail::absorb_head(dims, input.data(), weights.data(), head, first, count, absorbed.data());
  });
  return detail::to_double(std::move(absorbed));
}

template <class Scalar>
std::vector<double> up_project(const MlaDims& dims, std::span<const double> latent_out,
                               std::span<const double> w_uv, std::int64_t tokens, int threads) {
  const detail::Input<Scalar> input(latent_out), weights(w_uv);
  std::vector<Scalar> out(static_cast<std::size_t>(tokens * dims.num_heads * dims.v_head_dim));
  for_each_head(dims, tokens, threads, [&](int head, std::int64_t first, std::int64_t count) {
    detail::up_project_head(dims, input.data(), weights.data(), head, first, count, out.data());
  });
  return detail::to_double(std::move(out));
}

}  // namespace

AttentionOutput mla_expanded(const MlaProblem& problem, const Options& options) {
  return run_checked(problem, options, true, detail::expanded_attention<double>,
                     detail::expanded_attention<float>);
}

AttentionOutput mla_absorbed(const MlaProblem& problem, const Options& options) {
  return run_checked(problem, options, true, detail::absorbed_attention<double>,
                     detail::absorbed_attention<float>);
}

AttentionOutput mla_latent(const MlaProblem& problem, const Options& options) {
  return run_checked(problem, options, false, detail::latent_attention<double>,
                     detail::latent_attention<float>);
}

std::vector<double> absorb_query(const MlaDims& dims, std::span<const double> q, std::span<const double> w_uk,
                                 const Options& options) {
  validate(dims);
  const std::int64_t width = std::int64_t{dims.num_heads} * dims.head_width();
  const std::int64_t tokens = static_cast<std::int64_t>(q.size()) / width;
  detail::require_size("q", q.size(), "[tokens, H, P+R]", {tokens, dims.num_heads, dims.head_width()});
  detail::require_size("w_uk", w_uk.size(), "[H, P, L]",
                       {dims.num_heads, dims.qk_nope_head_dim, dims.kv_lora_rank});
  return options.arithmetic == Arithmetic::kF64 ? absorb<double>(dims, q, w_uk, tokens, options.threads)
                                                : absorb<float>(dims, q, w_uk, tokens, options.threads);
}

std::vector<double> up_project_value(const MlaDims& dims, std::span<const double> latent_out,
                                     std::span<const double> w_uv, const Options& options) {
  validate(dims);
  const std::int64_t width = std::int64_t{dims.num_heads} * dims.kv_lora_rank;
  const std::int64_t tokens = static_cast<std::int64_t>(latent_out.size()) / width;
  detail::require_size("latent_out", latent_out.size(), "[tokens, H, L]",
                       {tokens, dims.num_heads, dims.kv_lora_rank});
  detail::require_size("w_uv", w_uv.size(), "[H, V, L]",
                       {dims.num_heads, dims.v_head_dim, dims.kv_lora_rank});
  return options.arithmetic == Arithmetic::kF64
             ? up_project<double>(dims, latent_out, w_uv, tokens, options.threads)
             : up_project<float>(dims, latent_out, w_uv, tokens, options.threads);
}

}  // namespace mla::reference
