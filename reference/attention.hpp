// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "mla/reference.hpp"
#include "visible.hpp"

/// The one attention every form here is made of. Scalar is double or float: all arithmetic and all
/// intermediate values are of that type.
namespace mla::reference::detail {

/// The gathered keys of one request and one KV head. v may be k (its first d_v channels).
template <class Scalar>
struct Keys {
  const Scalar* k = nullptr;  // [columns, d_qk]
  std::int64_t k_stride = 0;
  int d_qk = 0;
  const Scalar* v = nullptr;  // [columns, d_v]
  std::int64_t v_stride = 0;
  int d_v = 0;
};

/// The query heads of one request that share a KV head. Head g of query i stands at q + i * q_stride + g *
/// d_qk, its output at out + i * out_stride + g * d_v, its LSE at lse + i * lse_stride + g.
template <class Scalar>
struct Heads {
  int group = 1;
  const Scalar* q = nullptr;
  std::int64_t q_stride = 0;
  Scalar* out = nullptr;
  std::int64_t out_stride = 0;
  Scalar* lse = nullptr;
  std::int64_t lse_stride = 0;
  /// Like q, for statistics: what stands for |q| where rounding errors are estimated; null: |q| itself.
  const Scalar* q_terms = nullptr;
};

/// softmax(scale * q k^T) v for one block of rows: plain three-step softmax over the visible keys, or
/// `num_splits` of those over contiguous parts of the keys, merged by LSE. A row without keys gives 0 and LSE
/// -inf. A NaN or infinity in a key reaches the rows that see the key and no others.
template <class Scalar>
void attend(const VisibleKeys& visible, const Keys<Scalar>& keys, const Heads<Scalar>& heads, RowBlock block,
            Scalar scale, int num_splits);

/// The statistics of the same rows from their finished out and lse; those of row (i, g) go to
/// stats[i * heads.lse_stride + g].
template <class Scalar>
void collect_stats(const VisibleKeys& visible, const Keys<Scalar>& keys, const Heads<Scalar>& heads,
                   RowBlock block, Scalar scale, RowStats* stats);

/// Merges `parts` partial results of the same rows: out [parts, rows, width], lse [parts, rows].
template <class Scalar>
void merge_parts(std::int64_t parts, std::int64_t rows, std::int64_t width, const Scalar* part_out,
                 const Scalar* part_lse, Scalar* out, Scalar* lse);

/// Result of a whole call.
template <class Scalar>
struct Result {
  std::vector<Scalar> out;      // [tokens, H, d_v]
  std::vector<Scalar> lse;      // [tokens, H]
  std::vector<RowStats> stats;  // [tokens, H] if asked for
};

/// Attention of `heads` query heads over `kv_heads` KV heads on gathered keys. Threaded over (request, KV
/// head, rows).
template <class Scalar>
struct GroupedCall {
  const Batch& batch;
  int heads = 1, kv_heads = 1, d_qk = 1, d_v = 1;
  const Scalar* q = nullptr;  // [tokens, heads, d_qk]
  const Scalar* k = nullptr;  // [batch.rows, kv_heads, d_qk]
  std::int64_t k_row_stride = 0, k_head_stride = 0;
  const Scalar* v = nullptr;  // [batch.rows, kv_heads, d_v]
  std::int64_t v_row_stride = 0, v_head_stride = 0;
  Scalar scale = 0;
  int num_splits = 1, threads = 0;
  bool row_stats = false;
};
template <class Scalar>
[[nodiscard]] Result<Scalar> grouped_attention(const GroupedCall<Scalar>& call);

/// Space for the results of `batch`.
template <class Scalar>
[[nodiscard]] Result<Scalar> make_result(const Batch& batch, int heads, int width, bool row_stats) {
  Result<Scalar> result;
  const auto rows = static_cast<std::size_t>(batch.tokens) * static_cast<std::size_t>(heads);
  result.out.resize(rows * static_cast<std::size_t>(width));
  result.lse.resize(rows);
  if (row_stats) result.stats.resize(rows);
  return result;
}

}  // namespace mla::reference::detail
