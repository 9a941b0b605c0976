// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache_ops/paged_row.cuh"
#include "expand/segments.hpp"

/// What stands around the GEMMs and the attention of the expanded form: packed offsets, gathered rows, merge,
/// empty rows.
namespace mla::MLA_ARCH_NS::expand {

using namespace mla::kernels::expand;
using kernels::Strided;

inline constexpr int kThreads = 256;

/// Running sum of the segments' key counts by one block: a tile of kThreads segments at a time, warps first.
__global__ void __launch_bounds__(kThreads) offsets_kernel(const __grid_constant__ OffsetsParams p) {
  __shared__ int warp_total[kThreads / 32];
  const int lane = static_cast<int>(threadIdx.x & 31), warp = static_cast<int>(threadIdx.x / 32);
  int base = 0;
  if (threadIdx.x == 0) p.cu_rows[0] = 0;
  for (int first = 0; first < p.segments.count; first += kThreads) {
    const int s = first + static_cast<int>(threadIdx.x);
    int sum = 0;
    if (s < p.segments.count) {
      const int q_len = p.segments.cu_seqlens_q[s + 1] - p.segments.cu_seqlens_q[s];
      sum = visible_keys(p.segments.part, p.segments.mask, q_len, p.segments.seq_lens[s]).count();
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int left = __shfl_up_sync(0xffffffffU, sum, d);
      if (lane >= d) sum += left;
    }
    if (lane == 31) warp_total[warp] = sum;
    __syncthreads();
    int total = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) sum += warp_total[w];
      total += warp_total[w];
    }
    if (s < p.segments.count) p.cu_rows[s + 1] = base + sum;
    base += total;
    __syncthreads();
  }
}

/// Place of entry `index` of a segment's key list, or kMissing.
__device__ inline RowPlace segment_place(const RowsParams& p, int s, const Segment& segment, int index) {
  int request = s, position = 0;
  if (p.segments.topk > 0) {
    request = request_of(p.segments, s);
    if (request >= p.segments.requests) return cache_ops::kMissing;
    position = p.token_index[s * p.index_row + index * p.index_column];
    if (position < 0 || position >= segment.kv_len) return cache_ops::kMissing;
  } else {
    position = segment.keys.position(index);
  }
  return cache_ops::checked_place(p.cache, p.table_columns, request, position);
}

/// A warp gathers kRowsPerWarp neighbouring rows of the packed list.
__global__ void __launch_bounds__(32 * cache_ops::kMoveWarps, 4)
    rows_kernel(const __grid_constant__ RowsParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int first =
      static_cast<int>((blockIdx.x * cache_ops::kMoveWarps + threadIdx.x / 32) * cache_ops::kRowsPerWarp);
  const int topk = p.segments.topk;
  const std::int64_t total =
      topk > 0 ? static_cast<std::int64_t>(p.segments.count) * topk : p.segments.cu_rows[p.segments.count];
  const int last = static_cast<int>(min(
      static_cast<std::int64_t>(min(first + cache_ops::kRowsPerWarp, p.chunk_rows)), total - p.chunk_begin));
  if (first >= last) return;
  const Strided<const std::int32_t> cu_rows(p.segments.cu_rows, 1);
  int s = topk > 0 ? static_cast<int>((p.chunk_begin + first) / topk)
                   : cache_ops::last_not_after(cu_rows, p.segments.count, p.chunk_begin + first);
  Segment segment = segment_at(p.segments, s);
  for (int r = first; r < last; ++r) {
    const std::int64_t row = p.chunk_begin + r;
    while (row >= segment.first_row + segment.keys.count() && (topk == 0 || row >= segment.first_row + topk))
      segment = segment_at(p.segments, ++s);
    const RowPlace place = segment_place(p, s, segment, static_cast<int>(row - segment.first_row));
    if (p.valid != nullptr && lane == 0) p.valid[r] = place.block < 0 ? 0 : 1;
    cache_ops::gather_row(p.cache, place, p.rows, p.dtype, static_cast<std::int64_t>(r) * (p.latent + p.rope),
                          p.latent, p.rope, p.vector_io, lane);
  }
}

/// A warp merges one row. Parts with LSE -inf are not read; if only the first part counts and the output is
/// that part, the row is left as it is.
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ MergeParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= p.tokens * p.heads) return;
  const float* const lses = p.part_lse + row * p.lse_row;
  float top = -INFINITY;
  int live = 0;  // parts up to the last that counts
  for (int i = 0; i < p.count; ++i) {
    const float lse = lses[i * p.lse_part];
    if (lse != -INFINITY) live = i + 1;
    top = fmaxf(top, lse);  // a NaN comes back through the sum
  }
  if (p.out == p.parts && live == 1) return;
  const std::int64_t token = row / p.heads, head = row % p.heads;
  const std::int64_t at = token * p.out_token + head * p.out_head;
  float sum = 0.0F;
  for (int i = 0; i < live; ++i) sum += expf(lses[i * p.lse_part] - top);
  for (int c = lane; c < p.width; c += 32) {
    float value = 0.0F;
    for (int i = 0; i < live; ++i) {
      const float lse = lses[i * p.lse_part];
      if (lse == -INFINITY) continue;
      value += expf(lse - top) / sum *
               cache_ops::load_one(p.parts, p.dtype, i * p.part_stride + row * p.part_row + c);
    }
    cache_ops::store_one(p.out, p.out_dtype, at + c, value);
  }
  __syncwarp();  // the LSE may overwrite what the lanes have just read
  if (lane == 0 && p.lse != nullptr)
    p.lse[token * p.lse_token + head * p.lse_head] = live > 0 ? top + logf(sum) : -INFINITY;
}

__global__ void __launch_bounds__(kThreads) tail_kernel(const __grid_constant__ TailParams p) {
  const std::int64_t first = max(0, p.cu_seqlens_q[p.requests]);
  const std::int64_t elements = (p.tokens - first) * p.heads * p.width;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t row = i / p.width, token = first + row / p.heads, head = row % p.heads;
    cache_ops::store_one(p.out, p.out_dtype, token * p.out_token + head * p.out_head + i % p.width, 0.0F);
    if (i % p.width == 0 && p.lse != nullptr) p.lse[token * p.lse_token + head * p.lse_head] = -INFINITY;
  }
}

__global__ void __launch_bounds__(kThreads) fill_kernel(float* data, std::int64_t count, float value) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads)
    data[i] = value;
}

}  // namespace mla::MLA_ARCH_NS::expand
