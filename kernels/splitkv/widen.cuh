// SPDX-License-Identifier: Apache-2.0
// e4m3 rows to bf16 in shared memory.
#pragma once

#include "ptx/convert.cuh"
#include "splitkv/traits.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

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

/// 16 e4m3 values to 16 bf16 values, the two chunks of `to`. Exact while scale is a power of two, as the
/// format's rule has it; otherwise rounded once.
__device__ __forceinline__ void widen_chunk(uint4 raw, float scale, std::byte* first, std::byte* second) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  std::uint32_t out[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 moved = move_e4m3(words[i]);
    out[2 * i] = scale_pair(moved.x, scale);
    out[2 * i + 1] = scale_pair(moved.y, scale);
  }
  *reinterpret_cast<uint4*>(first) = make_uint4(out[0], out[1], out[2], out[3]);
  *reinterpret_cast<uint4*>(second) = make_uint4(out[4], out[5], out[6], out[7]);
}

/// A tile of the ring, widened for the products. The plain format's one scale is not applied here: it is part
/// of the softmax scale and of the final division.
template <class Config>
__device__ __forceinline__ void widen_tile(const Params& p, const Shared<Config>& shared, int stage) {
  const bool scaled = p.attention.cache.format == CacheFormat::kFp8DsMla;
  const int lane = static_cast<int>(threadIdx.x) % kLine;
  for (int row = static_cast<int>(threadIdx.x) / kLine; row < Config::kKeys; row += kThreads / kLine) {
    const std::byte* from = shared.ring(stage) + row * Config::kRawRowBytes;
    std::byte* to = shared.wide() + row * Config::kRowBytes;
    const auto chunk = [from](int at) { return *reinterpret_cast<const uint4*>(from + at); };
#pragma unroll
    for (int line = 0; line < Config::kLatent / 128; ++line) {
      const int c = line * kLine + lane;
      const float scale = scaled ? reinterpret_cast<const float*>(from + Config::kLatent)[line] : 1.0F;
      widen_chunk(chunk(c * kChunk), scale, to + swizzle(row, 2 * c), to + swizzle(row, 2 * c + 1));
    }
    const int rope_at = Config::kLatent + 16 + lane * kChunk;
    constexpr int kRopeChunk = Config::kLines * kLine;
    if (scaled) {
      if (lane * 8 < p.attention.rope) {
        *reinterpret_cast<uint4*>(to + swizzle(row, kRopeChunk + lane)) = chunk(rope_at);
      }
    } else if (lane * 16 < p.attention.rope) {
      widen_chunk(chunk(rope_at), 1.0F, to + swizzle(row, kRopeChunk + 2 * lane),
                  to + swizzle(row, kRopeChunk + 2 * lane + 1));
    }
  }
}

}  // namespace mla::MLA_ARCH_NS::splitkv
