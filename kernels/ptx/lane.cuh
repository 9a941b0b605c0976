// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// %laneid, read where it stands: volatile, so that nothing made from it is kept in registers from one use to
/// the next.
__device__ __forceinline__ int lane_now() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// %tid.x, read anew at every call: the compiler derives nothing from it ahead of time.
__device__ __forceinline__ std::uint32_t thread_of_cta() {
  std::uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

}  // namespace mla::MLA_ARCH_NS::ptx
