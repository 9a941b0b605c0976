// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mla/backend.hpp"

/// Types of backends that multiply absorbed queries with the cache's rows on tensor cores.
namespace mla::kernels {

/// What the rows of a 16-bit or fp8 cache are as operands: f16 where they are stored so, else bf16.
[[nodiscard]] DType element_of(CacheFormat format) noexcept;
/// The query has the operands' type; the output is bf16, f16 or f32, behind W_UV the query's type or f32. Does not ask
/// whether the backend reads the cache's format.
[[nodiscard]] Support check_absorbed_types(const AttentionShape& shape);

}  // namespace mla::kernels
