// SPDX-License-Identifier: Apache-2.0
// 8x8 matrices of 16-bit elements from shared memory to mma fragments. PTX ISA, "ldmatrix".
#pragma once

#include <cstdint>

namespace mla::MLA_ARCH_NS::ptx {

/// ldmatrix.x4: lane i gives the address of row i % 8 of matrix i / 8 (16 bytes, 16-byte aligned). Element
/// pair (row l / 4, columns 2 (l % 4), +1) of matrix m arrives in r[m] of lane l. All lanes must take part.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

/// ldmatrix.x2: the same for two matrices; lanes 16 to 31 give addresses, too, that are not used.
__device__ __forceinline__ void ldmatrix_x2(std::uint32_t (&r)[2], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(row)
               : "memory");
}

/// ldmatrix.x4.trans: as ldmatrix_x4, each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
