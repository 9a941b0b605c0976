// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/params.hpp"
#include "mla/cache.hpp"

namespace mla::kernels {

/// The view of a cache as kernels take it. Throws kInvalidArgument naming what is missing or does not fit the
/// layout: data, a second pool, a block size below 1, another format, a scale that is not finite and
/// positive. The block table may be absent.
[[nodiscard]] CacheParams cache_params(const CacheLayout& layout, const PagedLatentCache& cache);

/// All addresses of rows are multiples of `bytes` (both parts of a row).
[[nodiscard]] bool rows_aligned(const CacheParams& cache, std::int64_t latent_bytes, std::int64_t rope_bytes);

}  // namespace mla::kernels
