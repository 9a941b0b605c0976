// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that do not pass through registers.
// PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy".
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// cp.async.cg: 16 bytes past the L1, `source_bytes` (0..16) of them read and the rest written as zero. With
/// 0 the source is not read, but must be a 16-byte aligned address. Memory clobber: ordinary accesses keep
/// their side of it.
__device__ __forceinline__ void cp_async_16(std::uint32_t shared, const void* global, int source_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(source_bytes)
               : "memory");
}

/// The same, all 16 bytes.
__device__ __forceinline__ void cp_async_16(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

/// st.shared.v4: 16 bytes of zeros, by an ordinary store.
__device__ __forceinline__ void store_zeros_16(std::uint32_t shared) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(shared), "r"(0) : "memory");
}

/// cp.async.commit_group: the copies of this thread since the last one become a group.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// cp.async.wait_group: until at most kPending of this thread's newest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
