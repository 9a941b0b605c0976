// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: from accumulators to the output, at once where a unit is whole.
#pragma once

#include <cstdint>

#include "common/convert.cuh"
#include "latent/large_parts.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

/// Writes a unit's channels of this thread's two rows, the first being `first_row` of the request.
template <class Config>
__device__ __forceinline__ void store_unit(const Values<Config>& m, const Segment& s, std::int32_t first_row,
                                           int unit) {
  const kernels::AttentionParams& a = m.p.attention;
  const auto t = static_cast<int>(m.lane() % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int32_t row = first_row + 8 * h;
    const bool exists = row < s.r.queries * a.num_heads;
    const std::int32_t query = m.p.by_heads.quotient(row);
    const std::int64_t at = (s.r.first_token + query) * a.out.stride_token +
                            (row - query * a.num_heads) * a.out.stride_head + m.half * kHalf + unit * 128;
    if (a.out.dtype == DType::kF32) {
      auto* const out = static_cast<float*>(a.out.data) + at;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (exists) {
          *reinterpret_cast<float2*>(out + 8 * i + 2 * t) =
              make_float2(m.out[unit][4 * i + 2 * h], m.out[unit][4 * i + 2 * h + 1]);
        }
      }
      continue;
    }
    auto* const out = static_cast<std::uint16_t*>(a.out.data) + at + 8 * t;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      // Four lanes have two channels of each of four groups of 8: transposed, each has 8 neighbours of one
      // group.
      std::uint32_t x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const pair = &m.out[unit][4 * (4 * g + k) + 2 * h];
        x[k] = a.out.dtype == DType::kBF16 ? ptx::pack<__nv_bfloat16>(pair[0], pair[1])
                                           : ptx::pack<__half>(pair[0], pair[1]);
      }
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        const std::uint32_t other = __shfl_xor_sync(kEveryLane, t & 1 ? x[k] : x[k + 1], 1);
        x[k] = t & 1 ? other : x[k];
        x[k + 1] = t & 1 ? x[k + 1] : other;
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t other = __shfl_xor_sync(kEveryLane, t & 2 ? x[k] : x[k + 2], 2);
        x[k] = t & 2 ? other : x[k];
        x[k + 2] = t & 2 ? x[k + 2] : other;
      }
      if (exists) *reinterpret_cast<uint4*>(out + 32 * g) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
}

/// Divides by the sums of weights.
template <class Config>
__device__ __forceinline__ void normalise(Values<Config>& m) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float factor = m.sum[h] == 0.0F ? 0.0F : 1.0F / m.sum[h];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      m.out[0][i / 2 * 4 + 2 * h + i % 2] *= factor;
      m.out[1][i / 2 * 4 + 2 * h + i % 2] *= factor;
    }
  }
}

/// Accumulators to the output.
template <class Config>
__device__ __forceinline__ void store(const Values<Config>& m, const Segment& s) {
  const kernels::AttentionParams& a = m.p.attention;
  const std::int32_t first_row = s.group * Config::kRows + m.rank * 64 + m.row();
  store_unit(m, s, first_row, 0);
  store_unit(m, s, first_row, 1);
  if (m.half != 0 || a.lse == nullptr || m.lane() % 4 != 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int32_t row = first_row + 8 * h;
    if (row >= s.r.queries * a.num_heads) continue;
    const std::int32_t query = m.p.by_heads.quotient(row);
    a.lse[(s.r.first_token + query) * a.lse_stride_token + (row - query * a.num_heads) * a.lse_stride_head] =
        m.sum[h] == 0.0F ? -INFINITY : (m.top[h] + log2f(m.sum[h])) * kLn2;
  }
}

/// The end of a segment. All threads of the warpgroup.
template <class Config>
__device__ __forceinline__ void finish_segment(Values<Config>& m, const Segment& s) {
  if (s.whole()) {
    normalise(m);
    store(m, s);
  } else {
    CutUnit<Config>(m, s).merge(m);
  }
}

}  // namespace mla::MLA_ARCH_NS::latent::large
