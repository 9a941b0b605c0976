// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: the warpgroups that multiply weights with values, one for each half of the
// latent channels. See large.cuh for the picture.
#pragma once

#include <cstdint>
#include <type_traits>

#include "latent/large_shared.cuh"
#include "ptx/async_fence.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

template <class Config>
struct Values {
  using Element = typename Config::Element;

  const Call& p;
  Control& control;
  const std::uint32_t shared;
  const int rank;
  const int half;
  float out[2][64];  // [64 rows, 128 channels] each
  float top[2];      // behind the last block: of rows lane / 4 and + 8
  float sum[2];

  static __device__ __forceinline__ std::uint32_t thread() { return threadIdx.x % 128; }
  static __device__ __forceinline__ std::uint32_t lane() { return threadIdx.x % 32; }
  /// First of this thread's two rows in the tile.
  static __device__ __forceinline__ std::int32_t row() {
    return static_cast<std::int32_t>(thread() / 32 * 16 + lane() / 4);
  }
  /// All threads of the warpgroup.
  __device__ __forceinline__ void sync() const {
    if (half == 0) {
      ptx::bar_sync<2, 128>();
    } else {
      ptx::bar_sync<3, 128>();
    }
  }

  /// Keys that no query sees may hold anything, and 0 times NaN is NaN: their values become 0. Keys that only
  /// some queries see lose what is not finite in them: the rows that do see them have a weight that is not
  /// finite either.
  __device__ __forceinline__ void clear_unseen(const Segment& s, std::int32_t position,
                                               std::uint32_t slot) const {
    const Request& r = s.r;
    const kernels::AttentionParams& a = p.attention;
    for (std::uint32_t i = thread(); i < kBlock * 32; i += 128) {
      const std::uint32_t key = i / 32;
      const auto at = position + static_cast<std::int32_t>(key);
      const bool seen = at < r.end && (at < r.gap_begin || at >= r.gap_end);
      const bool by_all = !a.causal || (at <= r.keys - r.queries &&
                                        (a.window <= 0 || at >= r.keys - a.window || at < a.sink));
      if (seen && by_all) continue;
      const std::uint32_t to = slot + static_cast<std::uint32_t>(half) * kHalfBytes + key / 8 * kGroupBytes +
                               i % 32 / 8 * 1024 + key % 8 * 128 + i % 8 * 16;
      if (!seen) {
        ptx::store_zeros_16(to);
        continue;
      }
      auto* const values = static_cast<uint4*>(__cvta_shared_to_generic(to));
      const uint4 x = *values;
      *values = make_uint4(finite_pair(x.x), finite_pair(x.y), finite_pair(x.z), finite_pair(x.w));
    }
    ptx::fence_async_shared();
    sync();
  }
  /// Two elements, with 0 for those that are not finite: all bits of the exponent are set.
  static __device__ __forceinline__ std::uint32_t finite_pair(std::uint32_t pair) {
    constexpr std::uint32_t kExponent = std::is_same_v<Element, __half> ? 0x7c00U : 0x7f80U;
    if ((pair & kExponent) == kExponent) pair &= 0xffff0000U;
    if ((pair >> 16 & kExponent) == kExponent) pair &= 0x0000ffffU;
    return pair;
  }

  /// The sums so far refer to a smaller maximum: rarely, see kSlack.
  __device__ __forceinline__ void rescale(int slot) {
    const float a = control.factor[slot][row()], b = control.factor[slot][row() + 8];
    if (!__any_sync(0xffffffffU, a != 1.0F || b != 1.0F)) return;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      out[0][i] *= i / 2 % 2 == 0 ? a : b;
      out[1][i] *= i / 2 % 2 == 0 ? a : b;
    }
  }

  /// out += weights of 32 keys times their values; the group is closed.
  __device__ __forceinline__ void issue(std::uint32_t slot, int keys) {
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {  // one unit, then the other: switching in between is slower
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        ptx::wgmma_m64n128<Element>(out[unit], weight_operand(slot, 2 * keys + s),
                                    value_operand(slot, 2 * keys + s, half * 4 + unit * 2));
      }
    }
    ptx::wgmma_commit();
  }

  /// One arrival of this warp, for 32 keys of the slot, in every CTA of the cluster.
  __device__ __forceinline__ void release(int slot, int keys) const {
    __syncwarp();
    const std::uint32_t empty = ptx::smem(&control.empty[slot][keys]);
    if constexpr (Config::kTiles == 1) {
      if (lane() == 0) ptx::mbarrier_arrive(empty);
    } else {
      if (lane() < Config::kTiles) ptx::mbarrier_arrive_cluster(ptx::map_shared(empty, lane()));
    }
  }

  /// Segment by segment, block by block; `finish` takes the result of a segment.
  template <class Finish>
  __device__ __forceinline__ void run(const Finish& finish) {
    int slot = 0, segment = 0;
    std::uint32_t parity = 0;
    while (true) {
      ptx::mbarrier_wait(ptx::smem(&control.full[slot][half]),
                         parity);  // the segment is written before its first block
      const Segment& s = control.segments[segment];
      const std::int32_t first = s.first, steps = s.last - first;
#pragma unroll
      for (int i = 0; i < 64; ++i) out[0][i] = out[1][i] = 0.0F;
      for (std::int32_t i = 0; i < steps; ++i) {
        ptx::mbarrier_wait(ptx::smem(&control.weights_full[slot][0]), parity);
        ptx::mbarrier_wait(ptx::smem(&control.full[slot][half]), parity);
        const std::uint32_t tile = shared + static_cast<std::uint32_t>(slot) * kSlotBytes;
        if (i > 0) rescale(slot);
        const std::int32_t j = first + i;
        if (j < s.plain_begin || j >= s.plain_end) clear_unseen(s, s.r.position(j), tile);
        ptx::keep(out[0]);
        ptx::keep(out[1]);
        ptx::wgmma_fence();
        issue(tile, 0);
        ptx::mbarrier_wait(ptx::smem(&control.weights_full[slot][1]), parity);
        issue(tile, 1);
        ptx::wgmma_wait<1>();
        release(slot, 0);  // so that the next block's first half is on its way early
        ptx::wgmma_wait<0>();
        ptx::keep(out[0]);
        ptx::keep(out[1]);
        if (i + 1 == steps) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            top[h] = control.top[slot][row() + 8 * h];
            sum[h] = control.sum[slot][row() + 8 * h];
          }
        }
        release(slot, 1);
        if (++slot == kSlots) {
          slot = 0;
          parity ^= 1;
        }
      }
      const bool more = s.more != 0;
      finish(s);
      if (!more) break;
      segment = segment + 1 == kSegments ? 0 : segment + 1;
    }
  }
};

}  // namespace mla::MLA_ARCH_NS::latent::large
