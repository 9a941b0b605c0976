// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: the warpgroup that makes scores and weights. See large.cuh for the picture.
#pragma once

#include <cstdint>

#include "latent/large_shared.cuh"
#include "ptx/async_fence.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/store.cuh"
#include "ptx/wgmma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr unsigned kEveryLane = 0xffffffffU;
/// A maximum that no score falls below, yet finite: rows that see nothing would otherwise compute inf - inf.
inline constexpr float kLowest = -1e30F;
/// The sums are rescaled only when the maximum has grown by more than this (as a power of two): until then
/// weights up to 2^8 are as exact as weights up to 1.
inline constexpr float kSlack = 8.0F;

/// Named barriers: 1 for the scores' warpgroup, 2 and 3 for those of the values, 4 for both of these.
inline constexpr int kScoresBarrier = 1, kValuesBarrier = 4;

template <class Config>
struct Scores {
  using Element = typename Config::Element;

  const Call& p;
  Control& control;
  const std::uint32_t shared;
  const int rank;
  float score[32];               // [64 rows, 64 keys]
  std::uint32_t held[kHeld][4];  // fragments of the query, of every second 16 channels
  float top[2];  // of rows lane / 4 and + 8: maximum (times scale * log2 e) that the weights refer to
  float sum[2];  // this thread's share of the sum of weights

  static __device__ __forceinline__ std::uint32_t lane() { return threadIdx.x % 32; }
  /// First of this thread's two rows in the tile.
  static __device__ __forceinline__ std::uint32_t row() { return threadIdx.x % 128 / 32 * 16 + lane() / 4; }

  /// A product whose two operands lie in shared memory reads as much as shared memory can give; with the query
  /// from registers in every second one, half of that is left to the copies and the products of the values.
  __device__ __forceinline__ void hold_query() {
    const std::uint32_t r = threadIdx.x % 128 / 32 * 16 + lane() % 16;
    const std::uint32_t from = shared + kQueryAt + r * 128;
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i) {
      const std::uint32_t piece = 2 * i % 4 * 2 + lane() / 16;
      ptx::ldmatrix_x4(held[i], from + i / 2 * kChunkBytes + ((piece ^ r % 8) << 4));
    }
  }

  __device__ __forceinline__ void multiply(std::uint32_t slot) {
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < (kLatent + kRope) / 16; ++s) {
      if (s % 2 == 0 && s / 2 < kHeld) {
        ptx::wgmma_m64n64<Element>(score, held[s / 2], key_operand(slot, s), s > 0);
      } else {
        ptx::wgmma_m64n64<Element>(score, query_operand(shared + kQueryAt, s), key_operand(slot, s));
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::keep(score);
  }

  /// Scores of keys that a row does not see become -inf.
  __device__ __forceinline__ void mask(const Segment& s, std::int32_t position) {
    const kernels::AttentionParams& a = p.attention;
    const std::int32_t rows = s.r.queries * a.num_heads;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int32_t r = s.group * Config::kRows + rank * 64 + static_cast<std::int32_t>(row()) + 8 * h;
      std::int32_t last = -1, first = 0;  // the rule of kernels/common/visible.cuh
      if (r < rows) {
        last = a.causal ? s.r.keys - s.r.queries + p.by_heads.quotient(r) : s.r.keys - 1;
        if (a.causal && a.window > 0) first = last - a.window + 1;
      }
      const std::int32_t mine = position + static_cast<std::int32_t>(lane() % 4) * 2;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const std::int32_t key = mine + i / 2 * 8 + i % 2;
        const bool sees = key <= last && (key >= first || key < a.sink);
        float& x = score[i / 2 * 4 + 2 * h + i % 2];
        x = sees ? x : -INFINITY;
      }
    }
  }

  /// score -> weights in the slot's rotary part, in two halves so that the values can start on the first.
  __device__ __forceinline__ void weigh(int slot, bool last) {
    const std::uint32_t to =
        shared + static_cast<std::uint32_t>(slot) * kSlotBytes + kRopeAt + row() * 128 + lane() % 4 * 4;
#pragma unroll
    for (float& x : score) x = __fmul_rn(x, p.scale_log2);  // here, so that a lone key weighs exactly 1
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = score[2 * h];
#pragma unroll
      for (int i = 0; i < 8; ++i) most = fmaxf(most, fmaxf(score[4 * i + 2 * h], score[4 * i + 2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(kEveryLane, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kEveryLane, most, 2));
      float factor = 1.0F;
      if (most > top[h] + kSlack) {
        factor = ptx::ex2(top[h] - most);
        top[h] = most;
        sum[h] *= factor;
      }
      if (lane() % 4 == 0) control.factor[slot][row() + 8 * static_cast<std::uint32_t>(h)] = factor;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        score[i] = ptx::ex2(__fsub_rn(score[i], top[i / 2 % 2]));
      }
      if (half == 0) ptx::bar_sync<kScoresBarrier, 128>();  // all four warps have read the rotary part
#pragma unroll
      for (int i = 4 * half; i < 4 * half + 4; ++i) {
        const std::uint32_t piece = (static_cast<std::uint32_t>(i) ^ (lane() / 4)) << 4;
        ptx::store_shared(to + piece, ptx::pack<Element>(score[4 * i], score[4 * i + 1]));
        ptx::store_shared(to + 8 * 128 + piece, ptx::pack<Element>(score[4 * i + 2], score[4 * i + 3]));
      }
      if (half == 1 && last) finish(slot);
      ptx::fence_async_shared();
      __syncwarp();
      if (lane() == 0) ptx::mbarrier_arrive(ptx::smem(&control.weights_full[slot][half]));
    }
    add_weights();
  }

  __device__ __forceinline__ void add_weights() {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum[0] += score[4 * i] + score[4 * i + 1];
      sum[1] += score[4 * i + 2] + score[4 * i + 3];
    }
  }

  /// Behind the last block of a segment: maximum and sum for the values' warpgroups.
  __device__ __forceinline__ void finish(int slot) {
    const float before[2] = {sum[0], sum[1]};
    add_weights();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float all = sum[h];
      all += __shfl_xor_sync(kEveryLane, all, 1);
      all += __shfl_xor_sync(kEveryLane, all, 2);
      sum[h] = before[h];
      if (lane() % 4 == 0) {
        control.top[slot][row() + 8 * static_cast<std::uint32_t>(h)] = top[h];
        control.sum[slot][row() + 8 * static_cast<std::uint32_t>(h)] = all;
      }
    }
  }

  /// Segment by segment, block by block.
  __device__ __forceinline__ void run() {
    int slot = 0, segment = 0;
    std::uint32_t parity = 0, queries = 0;  // queries that there were
    while (true) {
      ptx::mbarrier_wait(ptx::smem(&control.full[slot]),
                         parity);  // the segment is written before its first block
      const Segment& s = control.segments[segment];
      const std::int32_t first = s.first, steps = s.last - first;
      const std::int32_t plain_begin = s.plain_begin, plain_end = s.plain_end;
      const bool more = s.more != 0;
      top[0] = top[1] = kLowest;
      sum[0] = sum[1] = 0.0F;
      if (queries == 0) {
        ptx::mbarrier_wait(ptx::smem(&control.first_query_full), 0);
      } else {
        ptx::mbarrier_wait(ptx::smem(&control.query_full), (queries & 1) ^ 1);
      }
      ++queries;
      hold_query();
      for (std::int32_t i = 0; i < steps; ++i) {
        if (i > 0) ptx::mbarrier_wait(ptx::smem(&control.full[slot]), parity);
        multiply(shared + static_cast<std::uint32_t>(slot) * kSlotBytes);
        const bool last = i + 1 == steps;
        if (last && lane() == 0) ptx::mbarrier_arrive(ptx::smem(&control.query_empty));
        const std::int32_t j = first + i;
        if (j < plain_begin || j >= plain_end) mask(s, s.r.position(j));
        weigh(slot, last);
        if (++slot == kSlots) {
          slot = 0;
          parity ^= 1;
        }
      }
      if (!more) break;
      segment = segment + 1 == kSegments ? 0 : segment + 1;
    }
  }
};

}  // namespace mla::MLA_ARCH_NS::latent::large
