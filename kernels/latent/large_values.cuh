// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: weights times values, half of the latent channels a warpgroup. See large.cuh for
// the picture.
#pragma once

#include <cstdint>
#include <type_traits>

#include "latent/large_scores.cuh"
#include "latent/large_shared.cuh"
#include "ptx/async_fence.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

template <class Config, int kGroup>
struct Values {
  using Element = typename Config::Element;

  const Call& p;
  Control& control;
  const std::uint32_t shared;
  const Place place;
  float out[128];  // [64 rows, 256 channels]
  float top[2];    // of rows place.row() and + 8: maximum that `out` refers to
  float sum[2];    // behind the last block: of the weights

  __device__ __forceinline__ Values(const Call& call, Control& c, std::uint32_t at, Place where)
      : p(call), control(c), shared(at), place(where) {}

  __device__ __forceinline__ std::uint32_t tile(int slot) const {
    return shared + static_cast<std::uint32_t>(slot) * kSlotBytes;
  }

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i] = 0.0F;
    top[0] = top[1] = kLowest;
  }

  /// Keys that no query sees may hold anything, and 0 times NaN is NaN: their values become 0. Keys that only
  /// some queries see lose what is not finite in them: the rows that do see them have a weight that is not
  /// finite either.
  __device__ __forceinline__ void clear_unseen(const Segment& s, std::int32_t position,
                                               std::uint32_t slot) const {
    const Request& r = s.r;
    const kernels::AttentionParams& a = p.attention;
    for (std::uint32_t i = place.thread; i < kBlock * 32; i += 128) {
      const std::uint32_t key = i / 32;
      const auto at = position + static_cast<std::int32_t>(key);
      const bool seen = at < r.end && (at < r.gap_begin || at >= r.gap_end);
      const bool by_all = !a.causal || (at <= r.keys - r.queries &&
                                        (a.window <= 0 || at >= r.keys - a.window || at < a.sink));
      if (seen && by_all) continue;
      const std::uint32_t to =
          slot + kGroup * kHalfBytes + key / 8 * kGroupBytes + i % 32 / 8 * 1024 + key % 8 * 128 + i % 8 * 16;
      if (!seen) {
        ptx::store_zeros_16(to);
        continue;
      }
      auto* const values = static_cast<uint4*>(__cvta_shared_to_generic(to));
      const uint4 x = *values;
      *values = make_uint4(finite_pair(x.x), finite_pair(x.y), finite_pair(x.z), finite_pair(x.w));
    }
    ptx::fence_async_shared();
    group_sync<kGroup>();
  }
  /// Two elements, with 0 for those that are not finite: all bits of the exponent are set.
  static __device__ __forceinline__ std::uint32_t finite_pair(std::uint32_t pair) {
    constexpr std::uint32_t kExponent = std::is_same_v<Element, __half> ? 0x7c00U : 0x7f80U;
    if ((pair & kExponent) == kExponent) pair &= 0xffff0000U;
    if ((pair >> 16 & kExponent) == kExponent) pair &= 0x0000ffffU;
    return pair;
  }

  /// The sums so far refer to a smaller maximum: rarely, see kSlack.
  __device__ __forceinline__ void rescale(float first, float second) {
    if (!__any_sync(kEveryLane, first != top[0] || second != top[1])) return;
    const float a = rescale_factor(top[0], first), b = rescale_factor(top[1], second);
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i] *= i / 2 % 2 == 0 ? a : b;
    top[0] = first;
    top[1] = second;
  }

  /// out += the other's weights times the values of its block; `wait` is for those of the last 32 keys. 32 keys
  /// at a time go back as soon as they may be written over.
  template <class Wait>
  __device__ __forceinline__ void multiply_other(const Wait& wait) {
    constexpr int kOther = 1 - kGroup;
    start_products();
    add_other<0>();
    wait();
    add_other<1>();
    finish_products(kOther, 1);
  }
  /// The same with this warpgroup's own block and weights.
  __device__ __forceinline__ void multiply_own(const std::uint32_t (&weight)[4][4]) {
    start_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::wgmma_m64n256<Element>(out, weight[k], value_operand(tile(kGroup), k, kGroup));
      if (k % 2 == 1) ptx::wgmma_commit();
    }
    finish_products(kGroup, 0);
  }

  __device__ __forceinline__ void start_products() {
    ptx::keep(out);
    ptx::wgmma_fence();
  }
  template <int kKeys>
  __device__ __forceinline__ void add_other() {
    constexpr int kOther = 1 - kGroup;
#pragma unroll
    for (int k = 2 * kKeys; k < 2 * kKeys + 2; ++k) {
      ptx::wgmma_m64n256<Element>(out, weight_operand(tile(kOther), k),
                                  value_operand(tile(kOther), k, kGroup));
    }
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void finish_products(int slot, int part) {
    ptx::wgmma_wait<1>();
    release(slot, part, 0);
    ptx::wgmma_wait<0>();
    ptx::keep(out);
    release(slot, part, 1);
  }

  /// One arrival of this warp for 32 keys of a part of a slot, in every CTA of the cluster.
  __device__ __forceinline__ void release(int slot, int part, int keys) const {
    __syncwarp();
    const std::uint32_t empty = ptx::smem(&control.empty[slot][part][keys]);
    if constexpr (Config::kTiles == 1) {
      if (place.lane() == 0) ptx::mbarrier_arrive(empty);
    } else {
      if (place.lane() < Config::kTiles) ptx::mbarrier_arrive_cluster(ptx::map_shared(empty, place.lane()));
    }
  }
};

}  // namespace mla::MLA_ARCH_NS::latent::large
