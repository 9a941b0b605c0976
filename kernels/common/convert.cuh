// SPDX-License-Identifier: Apache-2.0
// Loads and stores of single elements as float, by a type known at compile time or at run time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "mla/formats.hpp"

namespace mla::MLA_ARCH_NS {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}

/// The bits of an e4m3 ("fn") value.
struct E4M3 {
  std::uint8_t bits;
};
/// Exact. Exponent and mantissa, put where f32 has them, are the value times 2^-120, subnormals included; the
/// toolkit's own conversion is a long routine on architectures without an instruction for it (before 8.9).
__device__ __forceinline__ float to_float(E4M3 x) {
  const std::uint32_t magnitude = x.bits & 0x7fU;
  const float scaled = __int_as_float(static_cast<int>((x.bits & 0x80U) << 24 | magnitude << 20));
  return magnitude == 0x7fU ? __int_as_float(0x7fffffff) : scaled * 0x1p120F;  // a select, no branch
}

/// Element `i` of an array whose type is a run-time value; the types that queries and weights may have.
__device__ __forceinline__ float load_as_float(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kBF16:
      return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::kF16:
      return to_float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

/// Rounds to nearest even on the way.
__device__ __forceinline__ void store_from_float(void* data, DType dtype, std::int64_t i, float x) {
  switch (dtype) {
    case DType::kBF16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(x);
      break;
    case DType::kF16:
      static_cast<__half*>(data)[i] = __float2half_rn(x);
      break;
    default:
      static_cast<float*>(data)[i] = x;
      break;
  }
}

}  // namespace mla::MLA_ARCH_NS
