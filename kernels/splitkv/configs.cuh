// SPDX-License-Identifier: Apache-2.0
// What is compiled. Few: every instantiation costs compile time on every architecture. 16 rows only where
// models with so few heads a GPU are: bf16 of L 512 and 256, f16 and fp8 of L 512; elsewhere 32 rows serve
// them.
#pragma once

#include "splitkv/kernel.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

//                                                       latent rows keys | scores: rows keys split | values: rows
template <class T, int kLatent, bool kFp8>
using Rows16 = Traits<T, kLatent, 16, 32, 1, 2, 4, 1, kFp8>;
/// Tiles of 64 keys where they fit: half the barriers.
template <class T, int kLatent, bool kFp8>
using Rows32 = Traits<T, kLatent, 32, kLargeBlocks && kLatent == 512 ? 64 : 32, 1, 2, 4, 1, kFp8>;
/// 215 KB of shared memory: only where blocks are large.
template <class T, int kLatent, bool kFp8>
using Rows64 = Traits<T, kLatent, 64, 48, 2, 2, 2, 2, kFp8>;

}  // namespace mla::MLA_ARCH_NS::splitkv
