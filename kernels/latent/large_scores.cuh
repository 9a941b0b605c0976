// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: scores and weights of a block, by the warpgroup that owns its slot. See large.cuh
// for the picture.
#pragma once

#include <cstdint>

#include "latent/large_shared.cuh"
#include "ptx/async_fence.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/lane.cuh"
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

/// Where a thread of a warpgroup stands in a tile of 64 rows.
struct Place {
  /// Read for every role anew: what is derived from it before the roles part would be spilled.
  const std::uint32_t thread = ptx::thread_of_cta() % 128;

  [[nodiscard]] __device__ __forceinline__ std::uint32_t lane() const { return thread % 32; }
  /// First of the thread's two rows; the other is 8 further down.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t row() const { return thread / 32 * 16 + lane() / 4; }
};
/// All threads of warpgroup kGroup, 0 or 1, of the two that compute.
template <int kGroup>
__device__ __forceinline__ void group_sync() {
  ptx::bar_sync<1 + kGroup, 128>();
}
/// Both of them.
__device__ __forceinline__ void both_groups_sync() {
  ptx::bar_sync<3, 256>();
}

/// Weights of 32 keys of warpgroup kGroup are in shared memory, and it does not wait for the other to use them.
/// A named barrier because waking up from an mbarrier takes 100 cycles longer.
template <int kGroup, int kKeys>
__device__ __forceinline__ void weights_arrive() {
  ptx::bar_arrive<4 + 2 * kGroup + kKeys, 256>();
}
/// The other's side.
template <int kGroup, int kKeys>
__device__ __forceinline__ void weights_wait() {
  ptx::bar_sync<4 + 2 * kGroup + kKeys, 256>();
}

/// What the values so far, of a row with maximum `from`, must be multiplied with. Infinite maxima may be equal.
__device__ __forceinline__ float rescale_factor(float from, float to) {
  return from == to ? 1.0F : ptx::ex2(from - to);
}

template <class Config, int kGroup>
struct Scores {
  using Element = typename Config::Element;

  const Call& p;
  Control& control;
  const std::uint32_t shared;
  const Place place;
  float score[32];             // [64 rows, 64 keys]
  std::uint32_t weight[4][4];  // the same as fragments of 16 keys
  float top[2];  // of rows place.row() and + 8: maximum (times scale * log2 e) that `sum` refers to
  float sum[2];  // this thread's share of the sum of this warpgroup's weights

  __device__ __forceinline__ Scores(const Call& call, Control& c, std::uint32_t at, Place where)
      : p(call), control(c), shared(at), place(where) {}

  __device__ __forceinline__ std::uint32_t tile() const { return shared + kGroup * kSlotBytes; }

  __device__ __forceinline__ void start() {
    top[0] = top[1] = kLowest;
    sum[0] = sum[1] = 0.0F;
  }

  /// Scores of the block in the slot. The part that comes first is the one that the other warpgroup frees.
  __device__ __forceinline__ void multiply(std::uint32_t parity) {
    constexpr int kFirst = 16 * (1 - kGroup),
                  kSecond = 16 * kGroup;  // of the halves, in steps of 16 channels
    ptx::mbarrier_wait(ptx::smem(&control.full[kGroup][1]), parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = kFirst; s < kFirst + 16; ++s) add_product(s, s > kFirst);
#pragma unroll
    for (int s = kLatent / 16; s < (kLatent + kRope) / 16; ++s) add_product(s, 1);
    ptx::mbarrier_wait(ptx::smem(&control.full[kGroup][0]), parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = kSecond; s < kSecond + 16; ++s) add_product(s, 1);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::keep(score);
  }

  /// Channels 16 s .. 16 s + 15.
  __device__ __forceinline__ void add_product(int s, int accumulate) {
    ptx::wgmma_m64n64<Element>(score, query_operand(shared + kQueryAt, s), key_operand(tile(), s),
                               accumulate);
  }

  /// Scores of keys that a row does not see become -inf.
  __device__ __forceinline__ void mask(const Segment& s, std::int32_t position) {
    const kernels::AttentionParams& a = p.attention;
    const std::int32_t rows = s.r.queries * a.num_heads;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int32_t r =
          s.group * Config::kRows + Config::rank() * 64 + static_cast<std::int32_t>(place.row()) + 8 * h;
      std::int32_t last = -1, first = 0;  // the rule of kernels/common/visible.cuh
      if (r < rows) {
        last = a.causal ? s.r.keys - s.r.queries + p.by_heads.quotient(r) : s.r.keys - 1;
        if (a.causal && a.window > 0) first = last - a.window + 1;
      }
      const std::int32_t mine = position + static_cast<std::int32_t>(place.lane() % 4) * 2;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const std::int32_t key = mine + i / 2 * 8 + i % 2;
        const bool sees = key <= last && (key >= first || key < a.sink);
        float& x = score[i / 2 * 4 + 2 * h + i % 2];
        x = sees ? x : -INFINITY;
      }
    }
  }

  /// The maximum that this block's weights refer to: `before` or, if it has grown enough, a new one. Scores are
  /// scaled before it is taken off, so that a key that is seen alone has a weight of exactly 1.
  __device__ __forceinline__ void choose_top(const float (&before)[2]) {
    float most[2];
#pragma unroll
    for (float& x : score) x = __fmul_rn(x, p.scale_log2);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(score[2 * h], score[2 * h + 1]);
#pragma unroll
      for (int i = 1; i < 8; ++i) {
        most[h] = fmaxf(most[h], fmaxf(score[4 * i + 2 * h], score[4 * i + 2 * h + 1]));
      }
    }
#pragma unroll
    for (int d = 1; d < 4; d *= 2) {
#pragma unroll
      for (int h = 0; h < 2; ++h) most[h] = fmaxf(most[h], __shfl_xor_sync(kEveryLane, most[h], d));
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float now = most[h] > before[h] + kSlack ? most[h] : before[h];
      sum[h] *= rescale_factor(top[h], now);
      top[h] = now;
    }
  }

  /// Scores of 32 keys -> weights, in registers and in the slot's rotary part for the other warpgroup.
  template <int kKeys>
  __device__ __forceinline__ void weigh() {
#pragma unroll
    for (int i = 16 * kKeys; i < 16 * kKeys + 16; ++i) {
      score[i] = ptx::ex2(__fsub_rn(score[i], top[i / 2 % 2]));
    }
    if constexpr (kKeys == 0) {
      group_sync<kGroup>();  // all four warps have read the rotary part
      if (place.lane() % 4 == 0) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          control.top[kGroup][place.row() + 8 * static_cast<std::uint32_t>(h)] = top[h];
        }
      }
    }
    const std::uint32_t to = tile() + kRopeAt + place.row() * 128 + place.lane() % 4 * 4;
#pragma unroll
    for (int i = 4 * kKeys; i < 4 * kKeys + 4; ++i) {
      const std::uint32_t piece = (static_cast<std::uint32_t>(i) ^ (place.lane() / 4)) << 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        std::uint32_t& pair = weight[i / 2][i % 2 * 2 + h];
        pair = ptx::pack<Element>(score[4 * i + 2 * h], score[4 * i + 2 * h + 1]);
        ptx::store_shared(to + static_cast<std::uint32_t>(h) * (8 * 128) + piece, pair);
      }
    }
    ptx::fence_async_shared();
    weights_arrive<kGroup, kKeys>();
  }

  __device__ __forceinline__ void add_weights() {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum[0] += score[4 * i] + score[4 * i + 1];
      sum[1] += score[4 * i + 2] + score[4 * i + 3];
    }
  }
};

}  // namespace mla::MLA_ARCH_NS::latent::large
