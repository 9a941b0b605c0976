// SPDX-License-Identifier: Apache-2.0
#include "common/absorbed_types.hpp"

#include <fmt/format.h>

namespace mla::kernels {

DType element_of(CacheFormat format) noexcept {
  return format == CacheFormat::kF16 || format == CacheFormat::kF16Split ? DType::kF16 : DType::kBF16;
}

Support check_absorbed_types(const AttentionShape& shape) {
  if (shape.q_dtype != element_of(shape.cache)) {
    return Support::no(fmt::format("queries for a cache of {} are {}, not {}", name_of(shape.cache),
                                   name_of(element_of(shape.cache)), name_of(shape.q_dtype)));
  }
  if (shape.out_dtype != DType::kBF16 && shape.out_dtype != DType::kF16 && shape.out_dtype != DType::kF32) {
    return Support::no(fmt::format("outputs are bf16, f16 or f32, not {}", name_of(shape.out_dtype)));
  }
  if (shape.space == QuerySpace::kHead && shape.out_dtype != shape.q_dtype &&
      shape.out_dtype != DType::kF32) {
    return Support::no(fmt::format("outputs behind W_UV are of the query's type, {}, or f32, not {}",
                                   name_of(shape.q_dtype), name_of(shape.out_dtype)));
  }
  return Support::yes();
}

}  // namespace mla::kernels
