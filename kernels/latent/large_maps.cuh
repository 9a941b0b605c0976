// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: descriptions of the cache for the copy engine, made on the host for every call.
#pragma once

#include <algorithm>

#include "latent/large_load.cuh"
#include "latent/maps.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline Maps make_maps(const Call& p) {
  const kernels::CacheParams& c = p.attention.cache;
  const DType dtype = p.attention.q.dtype;  // the cache's
  const auto keys = static_cast<cuuint64_t>(c.block_size);
  const auto blocks = static_cast<cuuint64_t>(std::max<std::int64_t>(1, c.num_blocks));
  const auto box = static_cast<cuuint32_t>(p.box);
  const auto row = static_cast<cuuint64_t>(c.latent_row_stride);
  return {.latent = encode<5>(dtype, c.latent, {64, 8, kLatent / 64, keys / 8, blocks},
                              {row, 128, 8 * row, static_cast<cuuint64_t>(c.latent_block_stride)},
                              {64, 8, kHalf / 64, box / 8, 1}),
          .rope = encode<3>(
              dtype, c.rope, {kRope, keys, blocks},
              {static_cast<cuuint64_t>(c.rope_row_stride), static_cast<cuuint64_t>(c.rope_block_stride)},
              {kRope, box, 1})};
}

}  // namespace mla::MLA_ARCH_NS::latent::large
