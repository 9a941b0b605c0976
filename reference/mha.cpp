// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "attention.hpp"
#include "check.hpp"
#include "gather.hpp"
#include "mla/error.hpp"

namespace mla::reference {
namespace {

void validate(const MhaProblem& p, const Options& options) {
  constexpr int kWidest = 1 << 20;
  detail::require_between("num_heads", p.num_heads, 1, kWidest);
  detail::require_between("num_kv_heads", p.num_kv_heads, 1, kWidest);
  detail::require_between("d_qk", p.d_qk, 1, kWidest);
  detail::require_between("d_v", p.d_v, 1, kWidest);
  detail::require_at_least("num_splits", options.num_splits, 1);
  detail::require_softmax_scale(p.softmax_scale);
  if (p.num_heads % p.num_kv_heads != 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("num_heads {} is not a multiple of num_kv_heads {}",
                                                         p.num_heads, p.num_kv_heads));
  }
  if (p.v.empty() && p.d_v > p.d_qk) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("v is empty, so v is the head of k, but d_v {} is larger than d_qk {}", p.d_v, p.d_qk));
  }
}

template <class Scalar>
AttentionOutput run(const MhaProblem& p, const detail::Batch& batch, const Options& options) {
  const std::int64_t k_row = std::int64_t{p.num_kv_heads} * p.d_qk;
  const std::int64_t v_row = std::int64_t{p.num_kv_heads} * p.d_v;
  const detail::Input<Scalar> q(p.q);
  const detail::Input<Scalar> k = detail::gather_rows<Scalar>(batch, p.k, k_row);
  const bool shared = p.v.empty();
  const detail::Input<Scalar> v =
      shared ? detail::Input<Scalar>(std::vector<Scalar>{}) : detail::gather_rows<Scalar>(batch, p.v, v_row);
  auto result = detail::grouped_attention<Scalar>({.batch = batch,
                                                   .heads = p.num_heads,
                                                   .kv_heads = p.num_kv_heads,
                                                   .d_qk = p.d_qk,
                                                   .d_v = p.d_v,
                                                   .q = q.data(),
                                                   .k = k.data(),
                                                   .k_row_stride = k_row,
                                                   .k_head_stride = p.d_qk,
                                                   .v = shared ? k.data() : v.data(),
                                                   .v_row_stride = shared ? k_row : v_row,
                                                   .v_head_stride = shared ? p.d_qk : p.d_v,
                                                   .scale = static_cast<Scalar>(p.softmax_scale),
                                                   .num_splits = options.num_splits,
                                                   .threads = options.threads,
                                                   .row_stats = options.row_stats});
  return {detail::to_double(std::move(result.out)), detail::to_double(std::move(result.lse)),
          std::move(result.stats)};
}

}  // namespace

AttentionOutput mha(const MhaProblem& problem, const Options& options) {
  validate(problem, options);
  const detail::Batch batch = detail::make_batch(problem.batch, problem.visible);
  detail::require_size("q", problem.q.size(), "[tokens, H, d_qk]",
                       {batch.tokens, problem.num_heads, problem.d_qk});
  detail::require_size("k", problem.k.size(), "[sum kv_len, Hkv, d_qk]",
                       {batch.keys, problem.num_kv_heads, problem.d_qk});
  if (!problem.v.empty()) {
    detail::require_size("v", problem.v.size(), "[sum kv_len, Hkv, d_v]",
                         {batch.keys, problem.num_kv_heads, problem.d_v});
  }
  return options.arithmetic == Arithmetic::kF64 ? run<double>(problem, batch, options)
                                                : run<float>(problem, batch, options);
}

}  // namespace mla::reference
