// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: from accumulators to the output, over partial results where a unit is cut.
//
//   out = sum_i 2^(m_i - m) o_i / sum_i 2^(m_i - m) s_i,   m = max m_i,   lse = ln 2 (m + log2 of that sum)
//
// Parts are added in the order of the keys, whoever arrives last, so the bits repeat.
#pragma once

#include <cstdint>

#include "common/convert.cuh"
#include "latent/large_scores.cuh"
#include "latent/large_values.cuh"
#include "ptx/global.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr float kLn2 = 0.693147180559945309F;

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

/// The parts of a cut unit: this one's is written, and whoever arrives last adds them up. False: somebody
/// else will.
template <class Config>
__device__ __forceinline__ bool merge_parts(Values<Config>& m, const Segment& s) {
  const Call& p = m.p;
  const Range& range = m.control.range.range;
  const std::int32_t first = range_of(range.total, range.count, s.origin) + range.base;
  const std::int32_t parts =
      range_of(range.total, range.count, s.origin + s.r.blocks - 1) + range.base - first + 1;
  // A range may end one unit and begin another: slots 2 c and 2 c + 1.
  const auto slot = [&](std::int32_t part) { return 2 * (first + part) + (part == 0 ? 1 : 0); };
  const auto partial = [&](std::int32_t part) {
    const std::int32_t index = (slot(part) * Config::kTiles + m.rank) * 2 + m.half;
    return reinterpret_cast<float4*>(p.partials) +
           (index * (64 * kHalf / 4) + static_cast<std::int32_t>(m.thread()));
  };
  const auto sums = [&](std::int32_t part) {  // both halves write the same there
    return p.sums + ((slot(part) * Config::kTiles + m.rank) * 64 + m.row());
  };
  {
    const std::int32_t mine = static_cast<std::int32_t>(blockIdx.x / Config::kTiles) - first;
    float4* const to = partial(mine);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const float* const x = &m.out[i / 16][4 * (i % 16)];
      __stcg(to + i * 128, make_float4(x[0], x[1], x[2], x[3]));
    }
    if (m.lane() % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) __stcg(sums(mine) + 8 * h, make_float2(m.top[h], m.sum[h]));
    }
  }
  __threadfence();
  m.sync();
  if (m.thread() == 0) {
    std::int32_t* const arrived =
        p.counters +
        ((p.per_request > 0 ? range.base / p.per_request : first) * Config::kTiles + m.rank) * 2 + m.half;
    const bool last = ptx::atomic_add_acq_rel(arrived, 1) == parts - 1;
    if (last) *arrived = 0;
    m.control.last_arrival[m.half] = last ? 1 : 0;
  }
  m.sync();
  if (m.control.last_arrival[m.half] == 0) return false;
  __threadfence();
  float top[2] = {kLowest, kLowest};
  for (std::int32_t i = 0; i < parts; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], __ldcg(sums(i) + 8 * h).x);
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) m.out[0][i] = m.out[1][i] = 0.0F;
  m.sum[0] = m.sum[1] = 0.0F;
#pragma unroll 1
  for (std::int32_t i = 0; i < parts; ++i) {
    const float4* const from = partial(i);
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 part = __ldcg(sums(i) + 8 * h);
      factor[h] = ptx::ex2(part.x - top[h]);
      m.sum[h] += factor[h] * part.y;
    }
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      const float4 x = __ldcg(from + k * 128);
      float* const to = &m.out[k / 16][4 * (k % 16)];
      to[0] += factor[0] * x.x;
      to[1] += factor[0] * x.y;
      to[2] += factor[1] * x.z;
      to[3] += factor[1] * x.w;
    }
  }
  m.top[0] = top[0];
  m.top[1] = top[1];
  return true;
}

/// The end of a segment. All threads of the warpgroup.
template <class Config>
__device__ __forceinline__ void finish_segment(Values<Config>& m, const Segment& s) {
  const kernels::AttentionParams& a = m.p.attention;
  if (!s.whole() && !merge_parts(m, s)) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float factor = m.sum[h] == 0.0F ? 0.0F : 1.0F / m.sum[h];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      m.out[0][i / 2 * 4 + 2 * h + i % 2] *= factor;
      m.out[1][i / 2 * 4 + 2 * h + i % 2] *= factor;
    }
  }
  const std::int32_t first_row = s.group * Config::kRows + m.rank * 64 + m.row();
  store_unit(m, s, first_row, 0);
  store_unit(m, s, first_row, 1);
  if (m.half == 0 && a.lse != nullptr && m.lane() % 4 == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int32_t row = first_row + 8 * h;
      if (row >= s.r.queries * a.num_heads) continue;
      const std::int32_t query = m.p.by_heads.quotient(row);
      a.lse[(s.r.first_token + query) * a.lse_stride_token +
            (row - query * a.num_heads) * a.lse_stride_head] =
          m.sum[h] == 0.0F ? -INFINITY : (m.top[h] + log2f(m.sum[h])) * kLn2;
    }
  }
}

}  // namespace mla::MLA_ARCH_NS::latent::large
