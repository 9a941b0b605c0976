// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "input.hpp"
#include "mla/cache.hpp"
#include "visible.hpp"

/// The keys that some query sees, as rows of Scalar, request after request.
namespace mla::reference::detail {

/// From the caller's rows [sum kv_len, width]: [batch.rows, width].
template <class Scalar>
[[nodiscard]] Input<Scalar> gather_rows(const Batch& batch, std::span<const double> rows, std::int64_t width);

/// From a paged cache that require_readable let pass: [batch.rows, L+R] through decode_row. Threaded; reads
/// no slot that no query sees.
template <class Scalar>
[[nodiscard]] Input<Scalar> gather_cache(const Batch& batch, const PagedLatentCache& cache,
                                         const MlaDims& dims, int threads);

/// Checks the cache and, of the block table, exactly the entries that the batch needs (kInvalidArgument).
void require_readable(const Batch& batch, const PagedLatentCache& cache, const CacheLayout& layout);

/// Throws kInvalidArgument unless pointers, strides and sizes of the cache make sense for the format.
void require_cache(const PagedLatentCache& cache, const CacheLayout& layout);

}  // namespace mla::reference::detail
