// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: from accumulators to the output, over partial results where a unit is cut.
//
//   out = sum_i 2^(m_i - m) o_i / sum_i 2^(m_i - m) s_i,   m = max m_i,   lse = ln 2 (m + log2 of that sum)
//
// Parts are added in the order of the keys, whoever arrives last, so the bits repeat.
#pragma once

#include <cstdint>

#include "common/convert.cuh"
#include "latent/large_math.cuh"
#include "ptx/global.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr float kLn2 = 0.693147180559945309F;

/// With one tile each warpgroup has the sums over every second block: they meet, and each goes on with 128 of the 256
/// channels (accumulators 0 .. 63).
template <class Config>
__device__ __forceinline__ void join_groups(Math<Config>& m) {
  const int row = m.row();
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    m.sum[h] += __shfl_xor_sync(m.kEveryLane, m.sum[h], 1);
    m.sum[h] += __shfl_xor_sync(m.kEveryLane, m.sum[h], 2);
    if (m.lane() % 4 == 0) {
      m.control.top[m.group][row + 8 * h] = m.top[h];
      m.control.sum[m.group][row + 8 * h] = m.sum[h];
    }
  }
  sync_groups();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float top0 = m.control.top[0][row + 8 * h], top1 = m.control.top[1][row + 8 * h];
    const float top = fmaxf(top0, top1);
    factor[h] = ptx::ex2(m.top[h] - top);
    m.top[h] = top;
    m.sum[h] = ptx::ex2(top0 - top) * m.control.sum[0][row + 8 * h] + ptx::ex2(top1 - top) * m.control.sum[1][row + 8 * h];
  }
#pragma unroll
  for (int i = 0; i < 128; ++i) m.out[i] *= factor[i / 2 % 2];
  // Through the exchange buffers: first the upper half of warpgroup 0's channels, then the lower half of 1's.
  auto* const buffer = reinterpret_cast<float4*>(m.dynamic + Config::kExchangeAt) + m.thread();
  const auto give = [&](const float* from) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      buffer[i * 128] = make_float4(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
    }
  };
  const auto take = [&](const float* mine) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float4 x = buffer[i * 128];
      m.out[4 * i] = mine[4 * i] + x.x;
      m.out[4 * i + 1] = mine[4 * i + 1] + x.y;
      m.out[4 * i + 2] = mine[4 * i + 2] + x.z;
      m.out[4 * i + 3] = mine[4 * i + 3] + x.w;
    }
  };
  if (m.group == 0) {
    give(m.out + 64);
    sync_groups();
    sync_groups();
    take(m.out);
  } else {
    sync_groups();
    float lower[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) lower[i] = m.out[i];
    take(m.out + 64);
    sync_group(1);  // all of this warpgroup have read before it writes
    give(lower);
    sync_groups();
  }
  sync_groups();
  m.give_buffer_back();
}

/// Writes kCount / 2 channels of each of this thread's two rows, from `channel` on; `rows` of the tile exist.
template <class Config, int kCount>
__device__ __forceinline__ void store_rows(Math<Config>& m, const Segment& s, std::int32_t first_row,
                                           std::int32_t channel) {
  const kernels::AttentionParams& a = m.p.attention;
  const auto t = static_cast<int>(m.lane() % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int32_t row = first_row + 8 * h;
    const bool exists = row < s.r.queries * a.num_heads;
    const std::int32_t query = m.p.by_heads.quotient(row);
    const std::int64_t at = (s.r.first_token + query) * a.out.stride_token +
                            (row - query * a.num_heads) * a.out.stride_head + channel;
    if (a.out.dtype == DType::kF32) {
      auto* const out = static_cast<float*>(a.out.data) + at;
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) {
        if (exists) {
          *reinterpret_cast<float2*>(out + 8 * i + 2 * t) = make_float2(m.out[4 * i + 2 * h], m.out[4 * i + 2 * h + 1]);
        }
      }
      continue;
    }
    auto* const out = static_cast<std::uint16_t*>(a.out.data) + at + 8 * t;
#pragma unroll
    for (int g = 0; g < kCount / 16; ++g) {
      // Four lanes have two channels of each of four groups of 8: transposed, each has 8 neighbours of one group.
      std::uint32_t x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const pair = &m.out[4 * (4 * g + k) + 2 * h];
        x[k] = a.out.dtype == DType::kBF16 ? ptx::pack<__nv_bfloat16>(pair[0], pair[1]) : ptx::pack<__half>(pair[0], pair[1]);
      }
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        const std::uint32_t other = __shfl_xor_sync(m.kEveryLane, t & 1 ? x[k] : x[k + 1], 1);
        x[k] = t & 1 ? other : x[k];
        x[k + 1] = t & 1 ? x[k + 1] : other;
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t other = __shfl_xor_sync(m.kEveryLane, t & 2 ? x[k] : x[k + 2], 2);
        x[k] = t & 2 ? other : x[k];
        x[k + 2] = t & 2 ? x[k + 2] : other;
      }
      if (exists) *reinterpret_cast<uint4*>(out + 32 * g) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
}

/// The end of a segment. All threads of both warpgroups.
template <class Config>
__device__ __forceinline__ void finish_segment(Math<Config>& m, const Segment& s, int rank) {
  constexpr int kCount = Config::kTiles == 1 ? 64 : 128;  // accumulators a thread
  const Call& p = m.p;
  const kernels::AttentionParams& a = p.attention;
  const int tile_row = m.row();
  if constexpr (Config::kTiles == 1) {
    join_groups(m);
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      m.sum[h] += __shfl_xor_sync(m.kEveryLane, m.sum[h], 1);
      m.sum[h] += __shfl_xor_sync(m.kEveryLane, m.sum[h], 2);
    }
  }
  if (!s.whole()) {
    const Range& range = m.control.range.range;
    const std::int32_t first = range_of(range.total, range.count, s.origin) + range.base;
    const std::int32_t parts = range_of(range.total, range.count, s.origin + s.r.blocks - 1) + range.base - first + 1;
    // A range may end one unit and begin another: slots 2 c and 2 c + 1.
    const auto slot = [&](std::int32_t part) { return 2 * (first + part) + (part == 0 ? 1 : 0); };
    const auto partial = [&](std::int32_t part) {
      const std::int32_t record = slot(part) * 4 + rank * 2 + m.group;
      return reinterpret_cast<float4*>(p.partials) + (record * (kCount / 4 * 128) + static_cast<std::int32_t>(m.thread()));
    };
    const auto sums = [&](std::int32_t part) {  // with one tile both warpgroups write the same there
      return p.sums + ((slot(part) * 2 + rank) * Config::kRows + (Config::kTiles == 2 ? m.group * 64 : 0) + tile_row);
    };
    {
      const std::int32_t mine = static_cast<std::int32_t>(blockIdx.x / 2) - first;
      float4* const to = partial(mine);
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) {
        __stcg(to + i * 128, make_float4(m.out[4 * i], m.out[4 * i + 1], m.out[4 * i + 2], m.out[4 * i + 3]));
      }
      if (m.lane() % 4 == 0) {
#pragma unroll
        for (int h = 0; h < 2; ++h) __stcg(sums(mine) + 8 * h, make_float2(m.top[h], m.sum[h]));
      }
    }
    __threadfence();
    sync_group(m.group);
    if (m.thread() == 0) {
      std::int32_t* const arrived = p.counters + (p.per_request > 0 ? range.base / p.per_request : first) * 4 + rank * 2 + m.group;
      const bool last = ptx::atomic_add_acq_rel(arrived, 1) == parts - 1;
      if (last) *arrived = 0;
      m.control.last_arrival[m.group] = last ? 1 : 0;
    }
    sync_group(m.group);
    if (m.control.last_arrival[m.group] == 0) return;
    __threadfence();
    float sum[2] = {0.0F, 0.0F};
    float top[2] = {kLowest, kLowest};
    for (std::int32_t i = 0; i < parts; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], __ldcg(sums(i) + 8 * h).x);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) m.out[i] = 0.0F;
#pragma unroll 1
    for (std::int32_t i = 0; i < parts; ++i) {
      const float4* const from = partial(i);
      float factor[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 part = __ldcg(sums(i) + 8 * h);
        factor[h] = ptx::ex2(part.x - top[h]);
        sum[h] += factor[h] * part.y;
      }
#pragma unroll
      for (int k = 0; k < kCount / 4; ++k) {
        const float4 x = __ldcg(from + k * 128);
        m.out[4 * k] += factor[0] * x.x;
        m.out[4 * k + 1] += factor[0] * x.y;
        m.out[4 * k + 2] += factor[1] * x.z;
        m.out[4 * k + 3] += factor[1] * x.w;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      m.top[h] = top[h];
      m.sum[h] = sum[h];
    }
  }
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) factor[h] = m.sum[h] == 0.0F ? 0.0F : 1.0F / m.sum[h];
#pragma unroll
  for (int i = 0; i < kCount; ++i) m.out[i] *= factor[i / 2 % 2];
  const std::int32_t first_row = s.group * Config::kRows + (Config::kTiles == 2 ? m.group * 64 : 0) + tile_row;
  store_rows<Config, kCount>(m, s, first_row, kHalfLatent * rank + (Config::kTiles == 1 ? m.group * 128 : 0));
  if (a.lse != nullptr && rank == 0 && m.lane() % 4 == 0 && (Config::kTiles == 2 || m.group == 0)) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int32_t row = first_row + 8 * h;
      if (row >= s.r.queries * a.num_heads) continue;
      const std::int32_t query = p.by_heads.quotient(row);
      a.lse[(s.r.first_token + query) * a.lse_stride_token + (row - query * a.num_heads) * a.lse_stride_head] =
          m.sum[h] == 0.0F ? -INFINITY : (m.top[h] + log2f(m.sum[h])) * kLn2;
    }
  }
}

}  // namespace mla::MLA_ARCH_NS::latent::large
