// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: from accumulators to the output, over partial results where a unit is cut.
//
//   out = sum_i 2^(m_i - m) o_i / sum_i 2^(m_i - m) s_i,   m = max m_i,   lse = ln 2 (m + log2 of that sum)
//
// Parts are added in the order of the keys, whoever arrives last, so the bits repeat. A warpgroup's channels are
// four slices, each with a count of its own: parts that end at the same time arrive at them in different
// orders, so each of them adds some up, and nobody waits for anybody.
#pragma once

#include <cstdint>

#include "common/convert.cuh"
#include "latent/large_scores.cuh"
#include "latent/large_values.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr float kLn2 = 0.693147180559945309F;

/// A slice: channels 64 k .. 64 k + 63 of a warpgroup's half, 32 values a thread.
inline constexpr int kSlices = 4;

/// Writes a slice of this thread's two rows, the first being `first_row` of the request.
template <class Config, int kGroup>
__device__ __forceinline__ void store_slice(const Values<Config, kGroup>& m, const Segment& s,
                                            std::int32_t first_row, int slice, const float (&x)[32]) {
  const kernels::AttentionParams& a = m.p.attention;
  const auto t = static_cast<int>(m.place.lane() % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int32_t row = first_row + 8 * h;
    const bool exists = row < s.r.queries * a.num_heads;
    const std::int32_t query = m.p.by_heads.quotient(row);
    const std::int64_t at = (s.r.first_token + query) * a.out.stride_token +
                            (row - query * a.num_heads) * a.out.stride_head + kGroup * kHalf + slice * 64;
    if (a.out.dtype == DType::kF32) {
      auto* const out = static_cast<float*>(a.out.data) + at;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (exists) {
          *reinterpret_cast<float2*>(out + 8 * i + 2 * t) =
              make_float2(x[4 * i + 2 * h], x[4 * i + 2 * h + 1]);
        }
      }
      continue;
    }
    auto* const out = static_cast<std::uint16_t*>(a.out.data) + at + 8 * t;
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      // Four lanes have two channels of each of four groups of 8: transposed, each has 8 neighbours of one
      // group.
      std::uint32_t y[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float low = x[4 * (4 * g + k) + 2 * h], high = x[4 * (4 * g + k) + 2 * h + 1];
        y[k] =
            a.out.dtype == DType::kBF16 ? ptx::pack<__nv_bfloat16>(low, high) : ptx::pack<__half>(low, high);
      }
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        const std::uint32_t other = __shfl_xor_sync(kEveryLane, t & 1 ? y[k] : y[k + 1], 1);
        y[k] = t & 1 ? other : y[k];
        y[k + 1] = t & 1 ? y[k + 1] : other;
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t other = __shfl_xor_sync(kEveryLane, t & 2 ? y[k] : y[k + 2], 2);
        y[k] = t & 2 ? other : y[k];
        y[k + 2] = t & 2 ? y[k + 2] : other;
      }
      if (exists) *reinterpret_cast<uint4*>(out + 32 * g) = make_uint4(y[0], y[1], y[2], y[3]);
    }
  }
}

template <class Config, int kGroup>
__device__ __forceinline__ void store_lse(const Values<Config, kGroup>& m, const Segment& s,
                                          std::int32_t first_row, const float (&top)[2],
                                          const float (&sum)[2]) {
  const kernels::AttentionParams& a = m.p.attention;
  if (a.lse == nullptr || m.place.lane() % 4 != 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int32_t row = first_row + 8 * h;
    if (row >= s.r.queries * a.num_heads) continue;
    const std::int32_t query = m.p.by_heads.quotient(row);
    a.lse[(s.r.first_token + query) * a.lse_stride_token + (row - query * a.num_heads) * a.lse_stride_head] =
        sum[h] == 0.0F ? -INFINITY : (top[h] + log2f(sum[h])) * kLn2;
  }
}

/// Where the parts of a cut unit lie in the workspace.
template <class Config, int kGroup>
struct Parts {
  const Call& p;
  const std::int32_t first, count, mine;
  const std::int32_t rank, row, thread;

  __device__ __forceinline__ Parts(const Values<Config, kGroup>& m, const Segment& s, const Range& range)
      : p(m.p),
        first(range_of(range.total, range.count, s.origin) + range.base),
        count(range_of(range.total, range.count, s.origin + s.r.blocks - 1) + range.base - first + 1),
        mine(static_cast<std::int32_t>(blockIdx.x / Config::kTiles) - first),
        rank(Config::rank()),
        row(static_cast<std::int32_t>(m.place.row())),
        thread(static_cast<std::int32_t>(m.place.thread)) {}

  /// A range may end one unit and begin another: slots 2 c and 2 c + 1.
  [[nodiscard]] __device__ __forceinline__ std::int32_t slot(std::int32_t part) const {
    return (2 * (first + part) + (part == 0 ? 1 : 0)) * Config::kTiles + rank;
  }
  /// This thread's values, in steps of 128.
  [[nodiscard]] __device__ __forceinline__ float4* values(std::int32_t part) const {
    return reinterpret_cast<float4*>(p.partials) + ((slot(part) * 2 + kGroup) * (64 * kHalf / 4) + thread);
  }
  /// Maximum and sum of this thread's first row: both warpgroups write the same there.
  [[nodiscard]] __device__ __forceinline__ float2* sums(std::int32_t part) const {
    return p.sums + (slot(part) * 64 + row);
  }
  /// Of four counts in bytes, one a slice.
  [[nodiscard]] __device__ __forceinline__ std::int32_t* arrived(const Range& range) const {
    const std::int32_t unit = p.per_request > 0 ? range.base / p.per_request : first;
    return p.counters + (unit * Config::kTiles + rank) * 2 + kGroup;
  }
};

/// Adds up a slice of all parts and writes it. `out`, which is in the workspace by now, lends its registers: a
/// quarter for the sum, the others for parts whose loads are under way together.
template <class Config, int kGroup>
__device__ __forceinline__ void merge_slice(Values<Config, kGroup>& m, const Segment& s,
                                            const Parts<Config, kGroup>& parts, std::int32_t first_row,
                                            int slice) {
  constexpr int kTogether = 3;
  float top[2] = {kLowest, kLowest}, sum[2] = {};
  for (std::int32_t i = 0; i < parts.count; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], __ldcg(parts.sums(i) + 8 * h).x);
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) m.out[i] = 0.0F;
#pragma unroll 1
  for (std::int32_t i = 0; i < parts.count; i += kTogether) {
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (i + k >= parts.count) continue;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const float4 x = __ldcg(parts.values(i + k) + (slice * 8 + c) * 128);
        float* const to = &m.out[32 + 32 * k + 4 * c];
        to[0] = x.x;
        to[1] = x.y;
        to[2] = x.z;
        to[3] = x.w;
      }
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (i + k >= parts.count) continue;
      float factor[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 part = __ldcg(parts.sums(i + k) + 8 * h);
        factor[h] = ptx::ex2(part.x - top[h]);
        sum[h] += factor[h] * part.y;
      }
#pragma unroll
      for (int c = 0; c < 32; ++c) m.out[c] += factor[c / 2 % 2] * m.out[32 + 32 * k + c];
    }
  }
  const float factor[2] = {sum[0] == 0.0F ? 0.0F : 1.0F / sum[0], sum[1] == 0.0F ? 0.0F : 1.0F / sum[1]};
  float total[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) total[i] = m.out[i] * factor[i / 2 % 2];
  store_slice(m, s, first_row, slice, total);
  if (kGroup == 0 && slice == 0) store_lse(m, s, first_row, top, sum);
}

/// A part of a cut unit: written to the workspace, and the slices added up that all other parts have arrived at.
template <class Config, int kGroup>
__device__ __forceinline__ void finish_part(Values<Config, kGroup>& m, const Segment& s,
                                            std::int32_t first_row) {
  const Range& range = m.control.range.range;
  const Parts<Config, kGroup> parts(m, s, range);
  {
    float4* const to = parts.values(parts.mine);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      __stcg(to + i * 128, make_float4(m.out[4 * i], m.out[4 * i + 1], m.out[4 * i + 2], m.out[4 * i + 3]));
    }
    if (m.place.lane() % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) __stcg(parts.sums(parts.mine) + 8 * h, make_float2(m.top[h], m.sum[h]));
    }
  }
  group_sync<kGroup>();
  if (m.place.thread == 0) __threadfence();  // for what all of them wrote: the barrier makes it this thread's
  // A byte counts no more than 255 parts: then they arrive at all slices at once.
  const bool together = parts.count > 255;
  const std::int32_t turn = together ? 0 : parts.mine * kSlices / parts.count;
#pragma unroll 1
  for (std::int32_t i = 0; i < kSlices; ++i) {
    const std::int32_t slice = (turn + i) % kSlices;
    if (i == 0 || !together) {
      if (m.place.thread == 0) {
        std::int32_t* const arrived = parts.arrived(range);
        const std::int32_t shift = together ? 0 : 8 * slice;
        const auto before = static_cast<std::uint32_t>(atomicAdd(arrived, 1 << shift)) >> shift;
        const bool last = static_cast<std::int32_t>(together ? before : before & 255U) == parts.count - 1;
        if (last) {
          atomicAdd(arrived,
                    static_cast<std::int32_t>(0U - (static_cast<std::uint32_t>(parts.count) << shift)));
          __threadfence();
        }
        m.control.last_arrival[kGroup][i % 2] = last ? 1 : 0;
      }
      group_sync<kGroup>();
    }
    if (m.control.last_arrival[kGroup][together ? 0 : i % 2] == 0) continue;
    merge_slice(m, s, parts, first_row, slice);
  }
}

/// The end of a segment. All threads of the warpgroup.
template <class Config, int kGroup>
__device__ __forceinline__ void finish_segment(Values<Config, kGroup>& m, const Segment& s) {
  const std::int32_t first_row =
      s.group * Config::kRows + Config::rank() * 64 + static_cast<std::int32_t>(m.place.row());
  if (!s.whole()) {
    finish_part(m, s, first_row);
    return;
  }
  const float factor[2] = {m.sum[0] == 0.0F ? 0.0F : 1.0F / m.sum[0],
                           m.sum[1] == 0.0F ? 0.0F : 1.0F / m.sum[1]};
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    float x[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = m.out[32 * slice + i] * factor[i / 2 % 2];
    store_slice(m, s, first_row, slice, x);
  }
  if (kGroup == 0) store_lse(m, s, first_row, m.top, m.sum);
}

}  // namespace mla::MLA_ARCH_NS::latent::large
