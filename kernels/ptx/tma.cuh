// SPDX-License-Identifier: Apache-2.0
// Tensor copies by the copy engine (sm_90): a box of a tensor that a CUtensorMap describes. PTX ISA,
// "cp.async.bulk.tensor". Coordinates are elements, the innermost dimension first; elements outside the
// tensor arrive as zeros and count as bytes.
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// createpolicy.fractional: lines loaded under it are the first to leave the L2.
__device__ __forceinline__ std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// The same without a preference.
__device__ __forceinline__ std::uint64_t evict_normal_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// prefetch.tensormap: the descriptor itself, so that the first copy does not wait for it.
__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// cp.async.bulk.tensor.3d global to shared of this CTA; the bytes count at `barrier`.
__device__ __forceinline__ void tma_load(std::uint32_t shared, const void* map, std::uint32_t barrier, int c0,
                                         int c1, int c2, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "l"(policy)
      : "memory");
}

/// The same for five dimensions.
__device__ __forceinline__ void tma_load(std::uint32_t shared, const void* map, std::uint32_t barrier, int c0,
                                         int c1, int c2, int c3, int c4, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(policy)
      : "memory");
}

/// The same two to every CTA of the cluster whose bit is set in `ctas`: at the same shared address, counted
/// by the barrier at the same address.
__device__ __forceinline__ void tma_load_multicast(std::uint32_t shared, const void* map,
                                                   std::uint32_t barrier, int c0, int c1, int c2,
                                                   std::uint16_t ctas, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster."
      "L2::cache_"
      "hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "h"(ctas), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void tma_load_multicast(std::uint32_t shared, const void* map,
                                                   std::uint32_t barrier, int c0, int c1, int c2, int c3,
                                                   int c4, std::uint16_t ctas, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster."
      "L2::cache_"
      "hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8, %9;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "h"(ctas), "l"(policy)
      : "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
