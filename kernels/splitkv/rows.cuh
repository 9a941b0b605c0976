// SPDX-License-Identifier: Apache-2.0
// Rows of a unit: (query, head) pairs, head fastest.
#pragma once

#include "splitkv/traits.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

struct RowId {
  std::int64_t token = 0;
  std::int32_t head = 0;
};

__device__ __forceinline__ RowId row_id(const Params& p, const Unit& unit, std::int32_t row) {
  const std::int32_t query = row / p.attention.num_heads;
  return {std::int64_t{unit.first_token} + query, row - query * p.attention.num_heads};
}

/// Which positions a row sees, as bounds that cost four comparisons.
struct Sight {
  std::int32_t last = -1;  // nothing beyond it; -1: nothing at all
  std::int32_t first = 0;  // of the window
  std::int32_t sink = 0;   // positions below it are seen beside the window

  __device__ __forceinline__ Sight() {}
  __device__ __forceinline__ Sight(const Params& p, const Unit& unit, std::int32_t row) {
    if (row >= unit.rows(p)) return;
    const kernels::AttentionParams& a = p.attention;
    last = unit.keys - 1;
    if (a.topk > 0 || !a.causal) return;
    last = unit.position(row / a.num_heads);
    if (a.window <= 0) return;
    first = last - a.window + 1;
    sink = a.sink;
  }

  /// For shared memory.
  __device__ __forceinline__ explicit Sight(int4 kept) : last(kept.x), first(kept.y), sink(kept.z) {}
  __device__ __forceinline__ int4 packed(std::int32_t beside = 0) const {
    return make_int4(last, first, sink, beside);
  }

  /// position -1 is never seen.
  __device__ __forceinline__ bool sees(std::int32_t position) const {
    return position >= 0 && position <= last && (position >= first || position < sink);
  }
};

}  // namespace mla::MLA_ARCH_NS::splitkv
