// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "common/block_memory.cuh"
#include "common/check.hpp"
#include "expand/flash.cuh"

/// The attention kernel's tiles for each width, and its launch. Two row tiles (32 queries) a warp halve the
/// shared-memory reads for each product and leave just enough registers at a value width of 128; at 256 one
/// row tile fills them. Tiles of 64 keys read each query fragment half as often as tiles of 32.
/// Elsewhere than on 9.0 and 10.x a block must fit the 99 KB of 8.6, 8.9 and 12.x.
namespace mla::MLA_ARCH_NS::flash {

using kernels::expand::Tile;
using kernels::expand::Variant;

template <class T, int kDqk, int kDv>
struct Many : Traits<T, kDqk, kDv, kLargeBlocks ? 8 : 4, (kDv > 128 ? 1 : 2), kLargeBlocks ? 64 : 32> {};
template <class T, int kDqk, int kDv>
struct Few : Traits<T, kDqk, kDv, 1, 1, 32> {};

template <class Tr>
Tile tile_of() {
  return {Tr::kBlockM, Tr::kBlockN, sizeof(typename Tr::Shared)};
}

template <class Tr>
void launch(const AttendParams& p, cudaStream_t stream) {
  const std::int64_t blocks = static_cast<std::int64_t>(p.segments.count) * p.heads * p.splits * p.tiles;
  if (blocks == 0) return;
  constexpr std::size_t kShared = sizeof(typename Tr::Shared);
  MLA_CHECK_CUDA(cudaFuncSetAttribute(flash_kernel<Tr>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kShared)));
  const dim3 grid(static_cast<unsigned>(blocks)), block(Tr::kThreads);
  flash_kernel<Tr><<<grid, block, kShared, stream>>>(p);
  MLA_CHECK_LAUNCH("flash::flash_kernel", grid, block, kShared);
}

template <int kDqk, int kDv>
void attend(const AttendParams& p, const Variant& variant, cudaStream_t stream) {
  if (variant.dtype == DType::kF16) {
    variant.few_queries ? launch<Few<__half, kDqk, kDv>>(p, stream)
                        : launch<Many<__half, kDqk, kDv>>(p, stream);
  } else {
    variant.few_queries ? launch<Few<__nv_bfloat16, kDqk, kDv>>(p, stream)
                        : launch<Many<__nv_bfloat16, kDqk, kDv>>(p, stream);
  }
}

/// One file each, so that they compile side by side.
void attend_96x64(const AttendParams& p, const Variant& variant, cudaStream_t stream);
void attend_128x128(const AttendParams& p, const Variant& variant, cudaStream_t stream);
void attend_192x128(const AttendParams& p, const Variant& variant, cudaStream_t stream);
void attend_256x256(const AttendParams& p, const Variant& variant, cudaStream_t stream);

}  // namespace mla::MLA_ARCH_NS::flash
