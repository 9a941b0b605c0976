// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "attention.hpp"
#include "mla/dims.hpp"

/// The two forms of MLA on gathered latent rows; shared by the public functions and the CPU backends.
namespace mla::reference::detail {

template <class Scalar>
struct MlaCall {
  MlaDims dims;
  const Batch& batch;
  const Scalar* q = nullptr;     // [tokens, H, P+R], or [tokens, H, L+R] for latent_attention
  const Scalar* rows = nullptr;  // [batch.rows, L+R]
  const Scalar* w_uk = nullptr;  // [H, P, L]
  const Scalar* w_uv = nullptr;  // [H, V, L]
  Scalar scale = 0;
  int num_splits = 1, threads = 0;
  bool row_stats = false;
};

template <class Scalar>
[[nodiscard]] Result<Scalar> expanded_attention(const MlaCall<Scalar>& call);  // out [tokens, H, V]
template <class Scalar>
[[nodiscard]] Result<Scalar> absorbed_attention(const MlaCall<Scalar>& call);  // out [tokens, H, V]
template <class Scalar>
[[nodiscard]] Result<Scalar> latent_attention(const MlaCall<Scalar>& call);  // out [tokens, H, L]

/// One head's part of k or v of `rows` latent rows: K [rows, P+R] = [c W_UK,h^T | k_pe], V [rows, V] = c
/// W_UV,h^T. `k_stride` and `v_stride` are in elements; the targets must hold zeros.
template <class Scalar>
void expand_keys(const MlaDims& dims, const Scalar* latent, std::int64_t rows, const Scalar* w_uk_head,
                 Scalar* k, std::int64_t k_stride);
template <class Scalar>
void expand_values(const MlaDims& dims, const Scalar* latent, std::int64_t rows, const Scalar* w_uv_head,
                   Scalar* v, std::int64_t v_stride);

/// Tokens [first, first + count) of one head: q [tokens, H, P+R] -> absorbed [tokens, H, L+R] (holding
/// zeros).
template <class Scalar>
void absorb_head(const MlaDims& dims, const Scalar* q, const Scalar* w_uk, int head, std::int64_t first,
                 std::int64_t count, Scalar* absorbed);
/// The same tokens: latent out [tokens, H, L] -> out [tokens, H, V] (holding zeros).
template <class Scalar>
void up_project_head(const MlaDims& dims, const Scalar* latent_out, const Scalar* w_uv, int head,
                     std::int64_t first, std::int64_t count, Scalar* out);

}  // namespace mla::reference::detail
