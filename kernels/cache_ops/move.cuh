// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache_ops/paged_row.cuh"

/// Paged rows to dense rows, and blocks to blocks (docs/kernels/cache_ops.md). A warp moves a row at a time
/// in pieces of eight channels (gather) or 16 bytes (copy); bound by bytes read plus bytes written.
namespace mla::MLA_ARCH_NS::cache_ops {

__global__ void __launch_bounds__(32 * kMoveWarps, 4) gather_kernel(const __grid_constant__ GatherParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * kMoveWarps + threadIdx.x / 32) * kRowsPerWarp;
  const std::int64_t total =
      min(p.capacity, static_cast<std::int64_t>(p.source.cu_seqlens_k[p.source.requests]));
  if (first >= total) return;
  int request = last_not_after(p.source.cu_seqlens_k, p.source.requests, first);
  for (std::int64_t row = first; row < min(total, first + kRowsPerWarp); ++row) {
    while (p.source.cu_seqlens_k[request + 1] <= row) ++request;
    const std::int64_t position =
        row - p.source.cu_seqlens_k[request] + (p.source.first ? p.source.first[request] : 0);
    gather_row(p.cache, checked_place(p.cache, p.source.table_columns, request, position), p.rows, p.dtype,
               row * p.row_stride, p.latent, p.rope, p.vector_io, lane);
  }
}

template <class Unit>
__global__ void __launch_bounds__(32 * kMoveWarps, 6) copy_kernel(const __grid_constant__ CopyParams p) {
  const std::int64_t pair = blockIdx.x;
  const std::int64_t source = p.pairs[pair * p.pair_row], target = p.pairs[pair * p.pair_row + p.pair_column];
  if (source < 0 || source >= p.from_blocks || target < 0 || target >= p.to_blocks) return;
  const std::byte* const from = p.from.data + (p.from.by_pair ? pair : source) * p.from.block_stride;
  std::byte* const to = p.to.data + (p.to.by_pair ? pair : target) * p.to.block_stride;
  const int units = static_cast<int>(p.row_bytes / static_cast<std::int64_t>(sizeof(Unit)));
  const std::int64_t total = static_cast<std::int64_t>(units) * p.block_size;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; i < total;
       i += static_cast<std::int64_t>(gridDim.y) * blockDim.x) {
    const std::int64_t row = i / units, unit = i % units;
    reinterpret_cast<Unit*>(to + row * p.to.row_stride)[unit] =
        reinterpret_cast<const Unit*>(from + row * p.from.row_stride)[unit];
  }
}

__global__ void __launch_bounds__(32 * kMoveWarps, 6)
    channels_kernel(const __grid_constant__ ChannelsParams p) {
  const std::int64_t total = p.tokens * p.heads * p.width;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < total;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t row = i / p.width, channel = i % p.width, token = row / p.heads, head = row % p.heads;
    const std::int64_t from =
        token * p.from.token_stride + head * p.from.head_stride + p.from.first + channel;
    const std::int64_t to = token * p.to.token_stride + head * p.to.head_stride + p.to.first + channel;
    store_one(const_cast<void*>(p.to.data), p.to.dtype, to, load_one(p.from.data, p.from.dtype, from));
  }
}

}  // namespace mla::MLA_ARCH_NS::cache_ops
