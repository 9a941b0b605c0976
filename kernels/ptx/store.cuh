// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// st.shared.b32 to a shared address.
__device__ __forceinline__ void store_shared(std::uint32_t shared, std::uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
