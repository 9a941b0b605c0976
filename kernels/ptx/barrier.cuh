// SPDX-License-Identifier: Apache-2.0
// Named barriers: a part of a CTA waits for itself. PTX ISA, "bar". Barrier 0 belongs to __syncthreads. The
// number is a template argument because one that is computed makes the compiler reserve all sixteen.
#pragma once

namespace mla::MLA_ARCH_NS::ptx {

/// bar.sync: until kThreads threads (whole warps) have arrived.
template <int kBarrier, int kThreads>
__device__ __forceinline__ void bar_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
