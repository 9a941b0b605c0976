// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace mla::MLA_ARCH_NS::ptx {

/// cvt.rn.bf16x2.f32 / cvt.rn.f16x2.f32: two floats to a pair of T, `low` in the low half, each rounded to
/// nearest even.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>);
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

#if MLA_ARCH_ID >= 89
/// cvt.rn.satfinite.e4m3x2.f32: two floats to a pair of e4m3 codes, `low` in the low byte; NaN becomes 0x7f.
__device__ __forceinline__ std::uint32_t pack_e4m3(float low, float high) {
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

/// cvt.rn.f16x2.e4m3x2: a pair of e4m3 codes to f16, exactly.
__device__ __forceinline__ std::uint32_t unpack_e4m3(std::uint16_t codes) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
  return pair;
}
#endif

}  // namespace mla::MLA_ARCH_NS::ptx
