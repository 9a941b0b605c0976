// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mla::MLA_ARCH_NS::ptx {

/// %laneid, read where it stands: volatile, so that nothing made from it is kept in registers from one use to
/// the next.
__device__ __forceinline__ int lane_now() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

}  // namespace mla::MLA_ARCH_NS::ptx
