// SPDX-License-Identifier: Apache-2.0
// Clusters of CTAs and the shared memory of their neighbours (sm_90). PTX ISA, "barrier.cluster", "mapa".
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// %cluster_ctarank: this CTA's place in its cluster.
__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// barrier.cluster.arrive.relaxed: says "I am here" and promises nothing about memory.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// barrier.cluster.wait.acquire: until every thread of the cluster that still runs has arrived.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// mapa: the address, valid in the whole cluster, of what stands at `shared` in the CTA of that rank. Never
/// arrives at an address that this CTA could use as its own in a descriptor: the rank is in the high bits.
__device__ __forceinline__ std::uint32_t map_shared(std::uint32_t shared, std::uint32_t rank) {
  std::uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared), "r"(rank));
  return mapped;
}

}  // namespace mla::MLA_ARCH_NS::ptx
