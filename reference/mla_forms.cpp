// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "matrix.hpp"
#include "mla.hpp"
#include "parallel.hpp"

namespace mla::reference::detail {
namespace {

/// body(entry, head) for every request and head, in parallel. Per request and not per batch: a product over
/// all tokens of a batch would be faster, but a request's bits could then depend on its neighbours.
template <class Scalar, class Body>
void for_each_request_and_head(const MlaCall<Scalar>& call, Body body) {
  const auto requests = static_cast<std::int64_t>(call.batch.entries.size());
  parallel_for(requests * call.dims.num_heads, call.threads, [&](std::int64_t t) {
    body(call.batch.entries[static_cast<std::size_t>(t / call.dims.num_heads)],
         static_cast<int>(t % call.dims.num_heads));
  });
}

/// Head `head` of a request in arrays [tokens, H, width].
template <class Scalar>
Heads<Scalar> one_head(const BatchEntry& entry, const MlaDims& dims, int head, const Scalar* q, int q_width,
                       Scalar* out, int out_width, Scalar* lse) {
  const std::int64_t row = entry.first_token * dims.num_heads + head;
  const std::int64_t heads = dims.num_heads;
  return {1, q + row * q_width, heads * q_width, out + row * out_width, heads * out_width, lse + row, heads};
}

/// How far rounding of the latent output spreads through W_UV, and the size of the dot products behind it.
template <class Scalar>
void add_up_projection_stats(const MlaDims& dims, const Scalar* latent_out, const Scalar* w_uv_head,
                             RowStats& stats) {
  double squares = 0;
  for (int v = 0; v < dims.v_head_dim; ++v) {
    double dot = 0, spread = 0;
    for (int l = 0; l < dims.kv_lora_rank; ++l) {
      const double term = std::abs(static_cast<double>(w_uv_head[v * dims.kv_lora_rank + l] * latent_out[l]));
      dot += term;
      spread += term * term;
    }
    stats.max_up_dot = std::max(stats.max_up_dot, dot);
    stats.max_up_round = std::max(stats.max_up_round, std::sqrt(spread));
    squares += spread;
  }
  stats.rms_up_round = std::sqrt(squares / dims.v_head_dim);
}

template <class Scalar>
const Scalar* w_uk_of(const MlaDims& dims, const Scalar* w_uk, int head) {
  return w_uk + std::int64_t{head} * dims.qk_nope_head_dim * dims.kv_lora_rank;
}
template <class Scalar>
const Scalar* w_uv_of(const MlaDims& dims, const Scalar* w_uv, int head) {
  return w_uv + std::int64_t{head} * dims.v_head_dim * dims.kv_lora_rank;
}

/// What the absorbed query of one head amounts to where its rounding errors are estimated: a sum over P that happens to
/// cancel is small, but its errors are those of its terms. They come from P of the D = P + L + R additions of a score; the
/// result is therefore raised by P/D of what its square lacks to the terms' sum of squares.
template <class Scalar>
void absorbed_terms(const MlaDims& dims, const Scalar* q, const Scalar* w_uk_head, std::int64_t count,
                    std::int64_t q_stride, const Scalar* absorbed, Scalar* terms, std::int64_t stride) {
  const std::int64_t L = dims.kv_lora_rank, P = dims.qk_nope_head_dim;
  std::vector<Scalar> square_w(static_cast<std::size_t>(P * L)),
      square_q(static_cast<std::size_t>(count * P));
  std::vector<Scalar> sums(static_cast<std::size_t>(count * L));
  const auto square = [](Scalar x) { return x * x; };
  std::transform(w_uk_head, w_uk_head + P * L, square_w.begin(), square);
  for (std::int64_t i = 0; i < count; ++i)
    std::transform(q + i * q_stride, q + i * q_stride + P, square_q.begin() + i * P, square);
  add_product<Scalar>({square_q.data(), count, P, P}, {square_w.data(), P, L, L}, {sums.data(), count, L, L});
  const Scalar share = static_cast<Scalar>(P) / static_cast<Scalar>(P + dims.latent_width());
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t l = 0; l < L; ++l) {
      const Scalar value = square(absorbed[i * stride + l]);
      const Scalar lacks = std::max(Scalar{0}, sums[static_cast<std::size_t>(i * L + l)] - value);
      terms[i * stride + l] = std::sqrt(value + share * lacks);
    }
    std::copy_n(absorbed + i * stride + L, dims.qk_rope_head_dim, terms + i * stride + L);
  }
}

template <class Scalar>
std::vector<Scalar> zeros(std::int64_t rows, std::int64_t width) {
  return std::vector<Scalar>(static_cast<std::size_t>(rows * width));
}

}  // namespace

template <class Scalar>
void expand_keys(const MlaDims& dims, const Scalar* latent, std::int64_t rows, const Scalar* w_uk_head,
                 Scalar* k, std::int64_t k_stride) {
  const std::int64_t L = dims.kv_lora_rank, P = dims.qk_nope_head_dim, width = dims.latent_width();
  add_product_transposed<Scalar>({latent, rows, L, width}, {w_uk_head, P, L, L}, {k, rows, P, k_stride});
  for (std::int64_t j = 0; j < rows; ++j) {
    std::copy_n(latent + j * width + L, dims.qk_rope_head_dim, k + j * k_stride + P);
  }
}

template <class Scalar>
void expand_values(const MlaDims& dims, const Scalar* latent, std::int64_t rows, const Scalar* w_uv_head,
                   Scalar* v, std::int64_t v_stride) {
  const std::int64_t L = dims.kv_lora_rank, V = dims.v_head_dim;
  add_product_transposed<Scalar>({latent, rows, L, dims.latent_width()}, {w_uv_head, V, L, L},
                                 {v, rows, V, v_stride});
}

template <class Scalar>
void absorb_head(const MlaDims& dims, const Scalar* q, const Scalar* w_uk, int head, std::int64_t first,
                 std::int64_t count, Scalar* absorbed) {
  const std::int64_t L = dims.kv_lora_rank, P = dims.qk_nope_head_dim;
  const std::int64_t q_stride = std::int64_t{dims.num_heads} * dims.head_width();
  const std::int64_t stride = std::int64_t{dims.num_heads} * dims.latent_width();
  const Scalar* from = q + first * q_stride + head * dims.head_width();
  Scalar* to = absorbed + first * stride + head * dims.latent_width();
  add_product<Scalar>({from, count, P, q_stride}, {w_uk_of(dims, w_uk, head), P, L, L},
                      {to, count, L, stride});
  for (std::int64_t i = 0; i < count; ++i) {
    std::copy_n(from + i * q_stride + P, dims.qk_rope_head_dim, to + i * stride + L);
  }
}

template <class Scalar>
void up_project_head(const MlaDims& dims, const Scalar* latent_out, const Scalar* w_uv, int head,
                     std::int64_t first, std::int64_t count, Scalar* out) {
  const std::int64_t L = dims.kv_lora_rank, V = dims.v_head_dim, H = dims.num_heads;
  add_product_transposed<Scalar>({latent_out + (first * H + head) * L, count, L, H * L},
                                 {w_uv_of(dims, w_uv, head), V, L, L},
                                 {out + (first * H + head) * V, count, V, H * V});
}

template <class Scalar>
Result<Scalar> expanded_attention(const MlaCall<Scalar>& call) {
  const MlaDims& dims = call.dims;
  Result<Scalar> result = make_result<Scalar>(call.batch, dims.num_heads, dims.v_head_dim, call.row_stats);
  // One head of one request at a time: its K and V live only as long as its task.
  for_each_request_and_head(call, [&](const BatchEntry& entry, int head) {
    const std::int64_t keys = entry.visible.size();
    const Scalar* latent = call.rows + entry.first_row * dims.latent_width();
    std::vector<Scalar> k = zeros<Scalar>(keys, dims.head_width());
    std::vector<Scalar> v = zeros<Scalar>(keys, dims.v_head_dim);
    expand_keys(dims, latent, keys, w_uk_of(dims, call.w_uk, head), k.data(), dims.head_width());
    expand_values(dims, latent, keys, w_uv_of(dims, call.w_uv, head), v.data(), dims.v_head_dim);
    const Keys<Scalar> expanded{k.data(), dims.head_width(), dims.head_width(),
                                v.data(), dims.v_head_dim,   dims.v_head_dim};
    const Heads<Scalar> heads = one_head(entry, dims, head, call.q, dims.head_width(), result.out.data(),
                                         dims.v_head_dim, result.lse.data());
    for (const RowBlock block : row_blocks(entry.visible, 1)) {
      attend(entry.visible, expanded, heads, block, call.scale, call.num_splits);
      if (call.row_stats) {
        collect_stats(entry.visible, expanded, heads, block, call.scale,
                      result.stats.data() + entry.first_token * dims.num_heads + head);
      }
    }
  });
  return result;
}

template <class Scalar>
Result<Scalar> latent_attention(const MlaCall<Scalar>& call) {
  // One KV head of width L+R for all query heads; a value is the first L channels of its key.
  return grouped_attention<Scalar>({.batch = call.batch,
                                    .heads = call.dims.num_heads,
                                    .kv_heads = 1,
                                    .d_qk = call.dims.latent_width(),
                                    .d_v = call.dims.kv_lora_rank,
                                    .q = call.q,
                                    .k = call.rows,
                                    .k_row_stride = call.dims.latent_width(),
                                    .v = call.rows,
                                    .v_row_stride = call.dims.latent_width(),
                                    .scale = call.scale,
                                    .num_splits = call.num_splits,
                                    .threads = call.threads,
                                    .row_stats = call.row_stats});
}

template <class Scalar>
Result<Scalar> absorbed_attention(const MlaCall<Scalar>& call) {
  const MlaDims& dims = call.dims;
  const std::int64_t rows = call.batch.tokens * dims.num_heads;
  std::vector<Scalar> absorbed = zeros<Scalar>(rows, dims.latent_width());
  std::vector<Scalar> terms = zeros<Scalar>(call.row_stats ? rows : 0, dims.latent_width());
  for_each_request_and_head(call, [&](const BatchEntry& entry, int head) {
    absorb_head(dims, call.q, call.w_uk, head, entry.first_token, entry.request.q_len, absorbed.data());
    if (!call.row_stats) return;
    const std::int64_t row = entry.first_token * dims.num_heads + head;
    const std::int64_t at = row * dims.latent_width();
    absorbed_terms(dims, call.q + row * dims.head_width(), w_uk_of(dims, call.w_uk, head),
                   entry.request.q_len, std::int64_t{dims.num_heads} * dims.head_width(),
                   absorbed.data() + at, terms.data() + at,
                   std::int64_t{dims.num_heads} * dims.latent_width());
  });
  MlaCall<Scalar> middle = call;
  middle.q = absorbed.data();
  middle.row_stats = false;
  Result<Scalar> latent = latent_attention(middle);
  Result<Scalar> result = make_result<Scalar>(call.batch, dims.num_heads, dims.v_head_dim, call.row_stats);
  result.lse = std::move(latent.lse);
  for_each_request_and_head(call, [&](const BatchEntry& entry, int head) {
    up_project_head(dims, latent.out.data(), call.w_uv, head, entry.first_token, entry.request.q_len,
                    result.out.data());
    if (!call.row_stats) return;
    // Scores in the latent space, values as the caller sees them: pushed through W_UV.
    const std::int64_t keys = entry.visible.size();
    const Scalar* latent_rows = call.rows + entry.first_row * dims.latent_width();
    std::vector<Scalar> v = zeros<Scalar>(keys, dims.v_head_dim);
    expand_values(dims, latent_rows, keys, w_uv_of(dims, call.w_uv, head), v.data(), dims.v_head_dim);
    Heads<Scalar> heads = one_head(entry, dims, head, absorbed.data(), dims.latent_width(), result.out.data(),
                                   dims.v_head_dim, result.lse.data());
    const std::int64_t first = entry.first_token * dims.num_heads + head;
    heads.q_terms = terms.data() + first * dims.latent_width();
    for (const RowBlock block : row_blocks(entry.visible, 1)) {
      collect_stats(
          entry.visible,
          {latent_rows, dims.latent_width(), dims.latent_width(), v.data(), dims.v_head_dim, dims.v_head_dim},
          heads, block, call.scale, result.stats.data() + first);
    }
    for (std::int64_t i = 0; i < entry.request.q_len; ++i) {
      const std::int64_t row = first + i * dims.num_heads;
      add_up_projection_stats(dims, latent.out.data() + row * dims.kv_lora_rank,
                              w_uv_of(dims, call.w_uv, head), result.stats[static_cast<std::size_t>(row)]);
    }
  });
  return result;
}

#define MLA_INSTANTIATE(Scalar)                                                                            \
  template void expand_keys(const MlaDims&, const Scalar*, std::int64_t, const Scalar*, Scalar*,           \
                            std::int64_t);                                                                 \
  template void expand_values(const MlaDims&, const Scalar*, std::int64_t, const Scalar*, Scalar*,         \
                              std::int64_t);                                                               \
  template void absorb_head(const MlaDims&, const Scalar*, const Scalar*, int, std::int64_t, std::int64_t, \
                            Scalar*);                                                                      \
  template void up_project_head(const MlaDims&, const Scalar*, const Scalar*, int, std::int64_t,           \
                                std::int64_t, Scalar*);                                                    \
  template Result<Scalar> expanded_attention(const MlaCall<Scalar>&);                                      \
  template Result<Scalar> absorbed_attention(const MlaCall<Scalar>&);                                      \
  template Result<Scalar> latent_attention(const MlaCall<Scalar>&);
MLA_INSTANTIATE(double)
MLA_INSTANTIATE(float)
#undef MLA_INSTANTIATE

}  // namespace mla::reference::detail
