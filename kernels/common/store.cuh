// SPDX-License-Identifier: Apache-2.0
// Stores of pairs of elements from floats, by a type known at compile time or at run time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "mla/dtype.hpp"

namespace mla::MLA_ARCH_NS {

/// Two neighbouring elements from floats, rounded to nearest even; `to` is aligned to both.
__device__ __forceinline__ void store_pair(float* to, float2 x) {
  *reinterpret_cast<float2*>(to) = x;
}
__device__ __forceinline__ void store_pair(__nv_bfloat16* to, float2 x) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x.x, x.y);
}
__device__ __forceinline__ void store_pair(__half* to, float2 x) {
  *reinterpret_cast<__half2*>(to) = __floats2half2_rn(x.x, x.y);
}

/// Calls f with `data` as a pointer to its elements.
template <class F>
__device__ __forceinline__ void with_type(void* data, DType dtype, F f) {
  switch (dtype) {
    case DType::kBF16:
      return f(static_cast<__nv_bfloat16*>(data));
    case DType::kF16:
      return f(static_cast<__half*>(data));
    default:
      return f(static_cast<float*>(data));
  }
}

/// The same at element `i` of an array whose type is a run-time value, in few instructions.
__device__ __forceinline__ void store_pair(void* to, DType dtype, std::int64_t i, float2 x) {
  if (dtype == DType::kF32) {
    store_pair(static_cast<float*>(to) + i, x);
    return;
  }
  const __nv_bfloat162 bf16 = __floats2bfloat162_rn(x.x, x.y);
  const __half2 f16 = __floats2half2_rn(x.x, x.y);
  *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(to) + i) =
      dtype == DType::kBF16 ? *reinterpret_cast<const std::uint32_t*>(&bf16)
                            : *reinterpret_cast<const std::uint32_t*>(&f16);
}

}  // namespace mla::MLA_ARCH_NS
