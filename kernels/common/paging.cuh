// SPDX-License-Identifier: Apache-2.0
// From a position in a sequence to the address of its row. All offsets are 64-bit: 3.8 million rows of 576
// elements pass 2^31.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params.hpp"

namespace mla::MLA_ARCH_NS {

/// A row's place in its pool: physical block and offset in the block.
struct RowPlace {
  std::int32_t block = 0;
  std::int32_t offset = 0;
};

/// `position` is not negative.
__device__ __forceinline__ RowPlace place_of(const kernels::CacheParams& cache, std::int32_t request,
                                             std::int32_t position) {
  const std::int32_t column = cache.by_block_size.quotient(position);
  return {cache.block_table[request * cache.table_stride_request + column * cache.table_stride_column],
          position - column * cache.block_size};
}

__device__ __forceinline__ const std::byte* latent_row(const kernels::CacheParams& cache, RowPlace place) {
  return cache.latent + place.block * cache.latent_block_stride + place.offset * cache.latent_row_stride;
}

__device__ __forceinline__ const std::byte* rope_row(const kernels::CacheParams& cache, RowPlace place) {
  return cache.rope + place.block * cache.rope_block_stride + place.offset * cache.rope_row_stride;
}

}  // namespace mla::MLA_ARCH_NS
