// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/convert.cuh"
#include "ptx/convert.cuh"

/// Elements of run-time type to and from f32, one and eight at a time. Conversions are those of
/// <mla/dtype.hpp>: to nearest, ties to even; e4m3 saturates.
namespace mla::MLA_ARCH_NS::cache_ops {

__device__ inline std::uint8_t f32_to_e4m3(float x) {
#if MLA_ARCH_ID >= 89
  return static_cast<std::uint8_t>(ptx::pack_e4m3(x, 0.0F));
#else
  // The toolkit's emulation goes through double. By hand: bits above 2^-6 round in place, below in steps of
  // 2^-9.
  const std::uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffU;
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  if (magnitude > 0x7f800000U) return 0x7f;
  if (magnitude >= __float_as_uint(448.0F)) return sign | 0x7e;
  std::uint32_t code;
  if (magnitude < __float_as_uint(0x1p-6F)) {
    code = static_cast<std::uint32_t>(__float2int_rn(__uint_as_float(magnitude) * 512.0F));
  } else {
    const std::uint32_t rounded = magnitude + 0x7ffffU + ((magnitude >> 20) & 1U);
    code = (rounded >> 20) - (120U << 3);  // exponent bias 127 -> 7
  }
  return sign | static_cast<std::uint8_t>(code > 0x7eU ? 0x7eU : code);
#endif
}

/// a / b, near enough that rounding it to e4m3 is as if the exact quotient had been rounded, for any b.
__device__ inline float divide_slowly(float a, float b) {
  const float q = __fdiv_rz(a, b);
  const float rest = __fmaf_rn(-q, b, a);
  return rest < 0.0F || rest > 0.0F ? __uint_as_float(__float_as_uint(q) | 1U) : q;
}

/// The same where `inverse` is about 1 / b, and b neither too small nor too large for the residual to be
/// exact: 16 bits of the quotient, and below them whether it lies beyond or before these. No branches.
__device__ inline float divide_by_inverse(float a, float b, float inverse) {
  const std::uint32_t near = __float_as_uint(__fmul_rn(a, inverse)) & 0xffffff00U;
  const float rest = __fmaf_rn(-__uint_as_float(near), b, a);  // 16 by 24 bits: its sign is exact
  const int before = static_cast<int>(__float_as_uint(rest) ^ __float_as_uint(a)) >> 31;  // -1 or 0
  const std::uint32_t there = near + static_cast<std::uint32_t>(before | 1);
  return __uint_as_float(rest < 0.0F || rest > 0.0F ? there : near);  // neither: exact, or no number
}

/// x / scale for the plain fp8 format, ready for rounding to e4m3; `inverse` 0: the scale is an extreme one.
template <int kCount>
__device__ inline void divide_for_e4m3(float (&x)[kCount], float scale, float inverse) {
  if (inverse == 0.0F) {
#pragma unroll 1
    for (int j = 0; j < kCount; ++j) {
      // Rotated through element 0: a run-time subscript would put the array into local memory.
      const float q = divide_slowly(x[0], scale);
#pragma unroll
      for (int i = 0; i + 1 < kCount; ++i) x[i] = x[i + 1];
      x[kCount - 1] = q;
    }
  } else {
#pragma unroll
    for (int j = 0; j < kCount; ++j) x[j] = divide_by_inverse(x[j], scale, inverse);
  }
}

/// The same where most x are ordinary numbers and `inverse` is not 0. x * inverse lies within two places of
/// the exact quotient, so both round to the same code unless where codes meet is as near: there, and at codes
/// themselves, the last 19 bits are 0.
template <int kCount>
__device__ inline void divide_mostly_for_e4m3(float (&x)[kCount], float scale, float inverse) {
  float q[kCount];
  std::uint32_t nearest = 0xffffffffU;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    q[j] = __fmul_rn(x[j], inverse);
    nearest = min(nearest, (__float_as_uint(q[j]) + 2U) & 0x7ffffU);
  }
  if (nearest <= 4U) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) q[j] = divide_by_inverse(x[j], scale, inverse);
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) x[j] = q[j];
}

__device__ inline std::uint32_t f32_to_e4m3_pair(float low, float high) {
#if MLA_ARCH_ID >= 89
  return ptx::pack_e4m3(low, high);
#else
  return f32_to_e4m3(low) | static_cast<std::uint32_t>(f32_to_e4m3(high)) << 8;
#endif
}

__device__ inline float load_one(const void* data, DType dtype, std::int64_t i) {
  return dtype == DType::kE4M3 ? to_float(static_cast<const E4M3*>(data)[i]) : load_as_float(data, dtype, i);
}
__device__ inline void store_one(void* data, DType dtype, std::int64_t i, float x) {
  if (dtype == DType::kE4M3) {
    static_cast<std::uint8_t*>(data)[i] = f32_to_e4m3(x);
  } else {
    store_from_float(data, dtype, i, x);
  }
}

__device__ inline std::uint32_t pack_pair(DType dtype, float low, float high) {
  if (dtype == DType::kBF16) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(two);
  }
  const __half2 two = __floats2half2_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(two);
}
__device__ inline float2 unpack_pair(DType dtype, std::uint32_t bits) {
  if (dtype == DType::kBF16) return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits));
  return __half22float2(reinterpret_cast<const __half2&>(bits));
}

/// Eight 16-bit elements as they were loaded.
__device__ inline void unpack_eight(DType dtype, uint4 pairs, float (&x)[8]) {
  const std::uint32_t words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 two = unpack_pair(dtype, words[j]);
    x[2 * j] = two.x, x[2 * j + 1] = two.y;
  }
}

/// Eight elements from `i`, which must be aligned to their own size together.
__device__ inline void load_eight(const void* data, DType dtype, std::int64_t i, float (&x)[8]) {
  if (dtype == DType::kF32) {
    const float4 a = reinterpret_cast<const float4*>(static_cast<const float*>(data) + i)[0];
    const float4 b = reinterpret_cast<const float4*>(static_cast<const float*>(data) + i)[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  } else if (dtype == DType::kE4M3) {
    const uint2 codes = *reinterpret_cast<const uint2*>(static_cast<const std::uint8_t*>(data) + i);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      x[j] = to_float(E4M3{static_cast<std::uint8_t>((j < 4 ? codes.x : codes.y) >> (8 * (j & 3)))});
  } else {
    const uint4 pairs = *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(data) + i);
    unpack_eight(dtype, pairs, x);
  }
}

__device__ inline void store_eight(void* data, DType dtype, std::int64_t i, const float (&x)[8]) {
  if (dtype == DType::kF32) {
    auto* const to = reinterpret_cast<float4*>(static_cast<float*>(data) + i);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
  } else if (dtype == DType::kE4M3) {
    std::uint32_t words[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 8; j += 2) words[j / 4] |= f32_to_e4m3_pair(x[j], x[j + 1]) << (8 * (j & 2));
    *reinterpret_cast<uint2*>(static_cast<std::uint8_t*>(data) + i) = make_uint2(words[0], words[1]);
  } else {
    *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(data) + i) =
        make_uint4(pack_pair(dtype, x[0], x[1]), pack_pair(dtype, x[2], x[3]), pack_pair(dtype, x[4], x[5]),
                   pack_pair(dtype, x[6], x[7]));
  }
}

/// Onto the grid of bf16 or f16, and back.
__device__ inline float round_onto(DType dtype, float x) {
  if (dtype == DType::kBF16) return __bfloat162float(__float2bfloat16_rn(x));
  if (dtype == DType::kF16) return __half2float(__float2half_rn(x));
  return x;
}

}  // namespace mla::MLA_ARCH_NS::cache_ops
