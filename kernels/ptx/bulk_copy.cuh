// SPDX-License-Identifier: Apache-2.0
// Bulk copies by the asynchronous proxy (sm_90). Sizes and addresses are multiples of 16 bytes. PTX ISA,
// "cp.async.bulk".
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// cp.async.bulk global to shared of this CTA; the bytes count at `barrier`.
__device__ __forceinline__ void bulk_load(std::uint32_t shared, const void* global, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

/// cp.async.bulk shared of this CTA to shared of another; `mapped` and `barrier` come from map_shared.
__device__ __forceinline__ void bulk_send(std::uint32_t mapped, std::uint32_t shared, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          mapped),
      "r"(shared), "r"(bytes), "r"(barrier)
      : "memory");
}

/// fence.proxy.async: this thread's ordinary accesses to its CTA's shared memory come before later ones of
/// bulk copies, TMA and wgmma.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
