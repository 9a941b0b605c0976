// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache_ops/elements.cuh"
#include "cache_ops/table.hpp"
#include "common/paging.cuh"

/// One row of a paged pool, any format, as a dense row: what every gathering kernel is made of. All lanes of
/// a warp work on a row, in pieces of eight channels where alignment allows.
namespace mla::MLA_ARCH_NS::cache_ops {

using namespace mla::kernels::cache_ops;
using kernels::CacheParams;
using kernels::Strided;

inline constexpr int kMoveWarps = 8;
inline constexpr int kRowsPerWarp = 4;  // neighbours share one search for their request

/// Largest b < count with cu[b] <= row.
__device__ inline int last_not_after(const Strided<const std::int32_t>& cu, int count, std::int64_t row) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (cu[middle] <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// A row whose block is not named, or a slot outside the pool.
__device__ constexpr RowPlace kMissing{-1, 0};

__device__ inline RowPlace place_of_slot(const CacheParams& cache, std::int64_t slot) {
  if (slot < 0) return kMissing;
  // A 64-bit division is a long routine, and few pools have more than 2^31 slots.
  const std::int64_t block = slot <= 0x7fffffff
                                 ? cache.by_block_size.quotient(static_cast<std::int32_t>(slot))
                                 : slot / cache.block_size;
  if (block >= cache.num_blocks) return kMissing;
  return {static_cast<std::int32_t>(block), static_cast<std::int32_t>(slot - block * cache.block_size)};
}

/// Place of a position through a table of `columns` columns; kMissing where there is no such column or no
/// such block.
__device__ inline RowPlace checked_place(const CacheParams& cache, std::int64_t columns, std::int32_t request,
                                         std::int64_t position) {
  if (position < 0 || position / cache.block_size >= columns) return kMissing;
  const RowPlace place = place_of(cache, request, static_cast<std::int32_t>(position));
  return place.block >= 0 && place.block < cache.num_blocks ? place : kMissing;
}

/// Channels i .. i + 7 of a row in f32, scaled; the caller knows that all eight lie on one side of `latent`.
__device__ inline void decode_eight(const CacheParams& cache, RowPlace place, int i, int latent,
                                    float (&x)[8]) {
  const std::byte* const row = latent_row(cache, place);
  const DType dtype = i < latent ? latent_dtype(cache.format) : rope_dtype(cache.format);
  if (i < latent) {
    load_eight(row, dtype, i, x);
  } else {
    load_eight(rope_row(cache, place), dtype, i - latent, x);
  }
  if (dtype != DType::kE4M3) return;
  const float scale = cache.scale_offset > 0
                          ? reinterpret_cast<const float*>(row + cache.scale_offset)[i / 128]
                          : cache.scale;
#pragma unroll
  for (int j = 0; j < 8; ++j) x[j] = __fmul_rn(x[j], scale);
}
__device__ inline float decode_one(const CacheParams& cache, RowPlace place, int i, int latent) {
  const std::byte* const row = latent_row(cache, place);
  const DType dtype = i < latent ? latent_dtype(cache.format) : rope_dtype(cache.format);
  const float x = i < latent ? load_one(row, dtype, i) : load_one(rope_row(cache, place), dtype, i - latent);
  if (dtype != DType::kE4M3) return x;
  return __fmul_rn(x, cache.scale_offset > 0
                          ? reinterpret_cast<const float*>(row + cache.scale_offset)[i / 128]
                          : cache.scale);
}

/// Writes one dense row, zeros if its place is missing; all lanes of a warp.
__device__ inline void gather_row(const CacheParams& cache, RowPlace place, void* rows, DType dtype,
                                  std::int64_t at, int latent, int rope, bool vector, int lane) {
  const int width = latent + rope;
  if (vector) {
    for (int i = 8 * lane; i < width; i += 256) {
      float x[8] = {};
      if (place.block >= 0) decode_eight(cache, place, i, latent, x);
      store_eight(rows, dtype, at + i, x);
    }
  } else {
    for (int i = lane; i < width; i += 32)
      store_one(rows, dtype, at + i, place.block < 0 ? 0.0F : decode_one(cache, place, i, latent));
  }
}

}  // namespace mla::MLA_ARCH_NS::cache_ops
