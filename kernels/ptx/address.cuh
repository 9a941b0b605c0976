// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// The 32-bit shared-memory address that the instructions of this folder take.
__device__ __forceinline__ std::uint32_t smem(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace mla::MLA_ARCH_NS::ptx
