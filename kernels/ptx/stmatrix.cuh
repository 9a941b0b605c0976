// SPDX-License-Identifier: Apache-2.0
// 8x8 matrices of 16-bit elements from mma fragments to shared memory (sm_90). PTX ISA, "stmatrix".
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// stmatrix.x4.trans: lane l holds in r[m] the pair (row l / 4, columns 2 (l % 4), +1) of matrix m. Column c of
/// matrix m is written to the 16 bytes at the address that lane 8 m + c gives. All lanes must take part.
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t to, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
