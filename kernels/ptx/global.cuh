// SPDX-License-Identifier: Apache-2.0
// Global memory shared by CTAs of one launch, and what launches know of each other. PTX ISA, "atom",
// "griddepcontrol".
#pragma once

namespace mla::MLA_ARCH_NS::ptx {

/// atom.add.acq_rel.gpu: adds and returns what stood there. Releases this thread's writes and, through a CTA
/// barrier before it, those of its CTA; acquires those that earlier arrivals released.
__device__ __forceinline__ int atomic_add_acq_rel(int* address, int value) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

/// The same for unsigned words.
__device__ __forceinline__ unsigned atomic_add_acq_rel(unsigned* address, unsigned value) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

/// atom.add.relaxed.gpu: the same without any order.
__device__ __forceinline__ unsigned atomic_add_relaxed(unsigned* address, unsigned value) {
  unsigned before;
  asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

/// ld.acquire.gpu: what was released before the value that this returns was written is visible.
__device__ __forceinline__ unsigned load_acquire(const unsigned* address) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

/// prefetch.global.L2: asks for the line of `address`; reads nothing that anybody could see.
__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// griddepcontrol.wait: until the launches before this one have finished and their writes are visible; at
/// once unless the launch asked for programmatic serialization.
__device__ __forceinline__ void wait_for_previous_launch() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// griddepcontrol.launch_dependents: the next launch, if it asked for programmatic serialization, may start.
__device__ __forceinline__ void let_next_launch_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
