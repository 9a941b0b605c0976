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

/// No instruction: the compiler must believe that the value comes into being here, so that nothing made from it
/// is kept in registers from elsewhere.
__device__ __forceinline__ std::uint32_t fresh(std::uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace mla::MLA_ARCH_NS::ptx
