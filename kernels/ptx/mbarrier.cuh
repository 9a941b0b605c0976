// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes (sm_90). PTX ISA, "Parallel Synchronization and
// Communication Instructions: mbarrier". A barrier is 8 bytes at an 8-byte aligned shared address; its phase
// starts at parity 0, so the first wait names parity 0 and a wait for the phase before it (parity 1) passes.
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// mbarrier.init: every phase of `barrier` completes after `arrivals` arrivals and all bytes it expects.
__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// fence.mbarrier_init: this thread's mbarrier_init calls are seen by the cluster and by asynchronous copies.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive: one arrival at a barrier of this CTA, releasing what this thread wrote.
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive at a barrier of any CTA of the cluster; `barrier` comes from map_shared. Comes after what
/// this thread has read, as a consumer's "you may overwrite"; it makes no writes visible to the other CTA
/// (release at cluster scope would be a fence of the whole GPU).
__device__ __forceinline__ void mbarrier_arrive_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.arrive.expect_tx: one arrival, and the phase waits for `bytes` more bytes of asynchronous copies.
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// mbarrier.expect_tx: the phase waits for `bytes` more bytes of asynchronous copies; no arrival.
__device__ __forceinline__ void mbarrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// cp.async.mbarrier.arrive.noinc: one arrival of this thread when all its earlier cp.async have landed. The
/// arrival counts among those of mbarrier_init.
__device__ __forceinline__ void mbarrier_arrive_cp_async(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// mbarrier.try_wait.parity: true once the phase of that parity is complete; may suspend the thread for a
/// while. What the arrivals of this CTA released is then visible.
__device__ __forceinline__ bool mbarrier_try_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, "
      "p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// The same, for arrivals from other CTAs of the cluster.
__device__ __forceinline__ bool mbarrier_try_wait_cluster(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], "
      "%2;\n\tselp.u32 "
      "%0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// Until the phase of that parity is complete.
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

/// The same, for arrivals from other CTAs of the cluster.
__device__ __forceinline__ void mbarrier_wait_cluster(std::uint32_t barrier, std::uint32_t parity) {
  while (!mbarrier_try_wait_cluster(barrier, parity)) {
  }
}

}  // namespace mla::MLA_ARCH_NS::ptx
