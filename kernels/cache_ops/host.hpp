// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache_ops/table.hpp"
#include "mla/cache.hpp"
#include "mla/device_ops.hpp"

/// What other host code uses of the cache operations; device code reads table.hpp alone.
namespace mla::kernels::cache_ops {

/// device_ops::write_cache with a bias [L+R] that is added to the inputs first (one f32 addition each), or
/// none.
void write_cache(const device_ops::CacheWrite& args, const ConstTensorRef& bias, void* stream);

/// Rows of the pool can be moved in pieces of eight channels by vector instructions.
[[nodiscard]] bool vector_pool(const CacheLayout& layout, const CacheParams& cache, const MlaDims& dims);

}  // namespace mla::kernels::cache_ops
