// SPDX-License-Identifier: Apache-2.0
// e4m3 rows to bf16 in shared memory.
#pragma once

#include "ptx/convert.cuh"
#include "splitkv/traits.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

#if MLA_ARCH_ID >= 89
/// Four e4m3 values times `scale` to two pairs of bf16: by the hardware's conversion to f16, which is exact.
template <bool kScaled>
__device__ __forceinline__ uint2 widen_four(std::uint32_t four, float scale) {
  const auto pair = [scale](std::uint32_t f16) {
    const float2 x = __half22float2(reinterpret_cast<const __half2&>(f16));
    return kScaled ? ptx::pack<__nv_bfloat16>(x.x * scale, x.y * scale) : ptx::pack<__nv_bfloat16>(x.x, x.y);
  };
  return make_uint2(pair(ptx::unpack_e4m3(static_cast<std::uint16_t>(four))),
                    pair(ptx::unpack_e4m3(static_cast<std::uint16_t>(four >> 16))));
}
#else
/// Four e4m3 values to bf16, exactly, times 2^-120: sign, exponent and mantissa moved to where bf16 has them.
/// The pairs (0, 1) and (2, 3) come out in x and y. A NaN becomes one.
__device__ __forceinline__ uint2 move_e4m3(std::uint32_t four) {
  const std::uint32_t low = __byte_perm(four, 0, 0x1404);   // bytes 0 and 1 on top of each half
  const std::uint32_t high = __byte_perm(four, 0, 0x3424);  // bytes 2 and 3
  uint2 out;
  out.x = (low & 0x80008000U) | ((low >> 4) & 0x07f007f0U);
  out.y = (high & 0x80008000U) | ((high >> 4) & 0x07f007f0U);
  const std::uint32_t nan = ((four & 0x7f7f7f7fU) + 0x01010101U) & 0x80808080U;
  if (nan != 0) {
    const std::uint32_t all = nan >> 7;  // 1 in each byte that is NaN
    out.x |= (all & 1U) * 0x7fffU | (all >> 8 & 1U) * 0x7fff0000U;
    out.y |= (all >> 16 & 1U) * 0x7fffU | (all >> 24 & 1U) * 0x7fff0000U;
  }
  return out;
}

__device__ __forceinline__ std::uint32_t scale_pair(std::uint32_t pair, float scale) {
  // Two products: 2^120 times a large scale would overflow.
  const float low = __uint_as_float(pair << 16);
  const float high = __uint_as_float(pair & 0xffff0000U);
  return ptx::pack<__nv_bfloat16>(low * 0x1p120F * scale, high * 0x1p120F * scale);
}

template <bool kScaled>
__device__ __forceinline__ uint2 widen_four(std::uint32_t four, float scale) {
  const uint2 moved = move_e4m3(four);
  return make_uint2(scale_pair(moved.x, kScaled ? scale : 1.0F), scale_pair(moved.y, kScaled ? scale : 1.0F));
}
#endif

/// Eight e4m3 values to a chunk of eight bf16 values. Exact while scale is a power of two, as the format's
/// rule has it; otherwise rounded once.
template <bool kScaled>
__device__ __forceinline__ void widen_chunk(const std::byte* from, float scale, std::byte* to) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  const uint2 low = widen_four<kScaled>(raw.x, scale), high = widen_four<kScaled>(raw.y, scale);
  *reinterpret_cast<uint4*>(to) = make_uint4(low.x, low.y, high.x, high.y);
}

/// A tile of the ring, widened for the products. kScaled: rows of fp8_ds_mla, with a scale for each 128
/// channels and a bf16 rotary part. The plain format's one scale is part of the softmax scale and of the
/// final division instead. Sixteen neighbouring threads take 128 codes of a row: half a warp reads all banks
/// once, and a quarter writes them once.
template <class Config, bool kScaled>
__device__ __forceinline__ void widen_rows(const Params& p, const Shared<Config>& shared, int stage) {
  constexpr int kTeam = 16;
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  for (int row = static_cast<int>(threadIdx.x) / kTeam; row < Config::kKeys; row += kThreads / kTeam) {
    const std::byte* from = shared.ring(stage) + row * Config::kRawRowBytes;
    std::byte* to = shared.wide() + row * Config::kRowBytes;
    const float* scales = reinterpret_cast<const float*>(from + Config::kLatent);
#pragma unroll
    for (int line = 0; line < Config::kLatent / 128; ++line) {
      widen_chunk<kScaled>(from + line * 128 + lane * 8, kScaled ? scales[line] : 1.0F,
                           to + swizzle(row, line * kTeam + lane));
    }
    const std::byte* rope = from + Config::kLatent + 16;
    std::byte* rope_to = to + swizzle(row, Config::kLines * kLine + lane % kLine);
    if (lane * 8 >= p.attention.rope) continue;
    if constexpr (kScaled) {
      *reinterpret_cast<uint4*>(rope_to) = *reinterpret_cast<const uint4*>(rope + lane * kChunk);
    } else {
      widen_chunk<false>(rope + lane * 8, 1.0F, rope_to);
    }
  }
}

template <class Config>
__device__ __forceinline__ void widen_tile(const Params& p, const Shared<Config>& shared, int stage) {
  if (p.attention.cache.format == CacheFormat::kFp8DsMla) {
    widen_rows<Config, true>(p, shared, stage);
  } else {
    widen_rows<Config, false>(p, shared, stage);
  }
}

}  // namespace mla::MLA_ARCH_NS::splitkv
