// SPDX-License-Identifier: Apache-2.0
#include "common/cache_params.hpp"

#include <fmt/format.h>

#include <cmath>

#include "common/require.hpp"

namespace mla::kernels {

CacheParams cache_params(const CacheLayout& layout, const PagedLatentCache& cache) {
  if (cache.format != layout.format) {
    refuse(fmt::format("the cache is {}, but the layout is of {}", name_of(cache.format),
                       name_of(layout.format)));
  }
  if (cache.data == nullptr) refuse("the cache has no data");
  if (cache.block_size < 1)
    refuse(fmt::format("the cache has blocks of {}, but must have at least 1", cache.block_size));
  if (layout.split() && cache.k_pe == nullptr) refuse("the cache has no k_pe pool");
  if (cache.format == CacheFormat::kFp8 && (!(cache.scale > 0) || !std::isfinite(cache.scale))) {
    refuse(fmt::format("the fp8 cache scale is {}, but must be finite and > 0", cache.scale));
  }
  CacheParams p;
  p.format = cache.format;
  p.block_size = cache.block_size;
  p.by_block_size = FastDivide(cache.block_size);
  p.num_blocks = cache.num_blocks;
  p.latent = cache.data;
  p.latent_block_stride = cache.block_stride_bytes;
  p.latent_row_stride = cache.row_stride_bytes;
  p.rope = layout.split() ? cache.k_pe : cache.data + layout.rope_offset;
  p.rope_block_stride = layout.split() ? cache.k_pe_block_stride_bytes : cache.block_stride_bytes;
  p.rope_row_stride = layout.split() ? cache.k_pe_row_stride_bytes : cache.row_stride_bytes;
  p.scale_offset = static_cast<std::int32_t>(layout.scale_offset);
  p.scale = cache.format == CacheFormat::kFp8 ? cache.scale : 1.0F;
  p.block_table = cache.block_table.data;
  p.table_stride_request = cache.block_table.stride[0];
  p.table_stride_column = cache.block_table.stride[1];
  return p;
}

bool rows_aligned(const CacheParams& cache, std::int64_t latent_bytes, std::int64_t rope_bytes) {
  return aligned(cache.latent, {cache.latent_block_stride, cache.latent_row_stride}, latent_bytes) &&
         aligned(cache.rope, {cache.rope_block_stride, cache.rope_row_stride}, rope_bytes);
}

}  // namespace mla::kernels
