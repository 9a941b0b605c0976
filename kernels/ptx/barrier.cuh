// SPDX-License-Identifier: Apache-2.0
// Named barriers: a part of a CTA waits for itself. PTX ISA, "bar". Barrier 0 belongs to __syncthreads. The
// number is a template argument because one that is computed makes the compiler reserve all sixteen.
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// bar.sync: until kThreads threads (whole warps) have arrived.
template <int kBarrier, int kThreads>
__device__ __forceinline__ void bar_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

/// bar.red.or: the same; whether the predicate holds for any of the threads.
template <int kBarrier, int kThreads>
__device__ __forceinline__ bool bar_or(bool mine) {
  std::uint32_t any;
  asm volatile(
      "{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\tbar.red.or.pred q, %2, %3, p;\n\tselp.u32 %0, 1, 0, "
      "q;\n\t}"
      : "=r"(any)
      : "r"(static_cast<std::uint32_t>(mine)), "n"(kBarrier), "n"(kThreads)
      : "memory");
  return any != 0;
}

}  // namespace mla::MLA_ARCH_NS::ptx
