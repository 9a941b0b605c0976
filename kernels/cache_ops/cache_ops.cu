// SPDX-License-Identifier: Apache-2.0
// Launches of the cache kernels: one warp a token or row, eight warps a block.
#include <cuda_runtime.h>

#include "cache_ops/move.cuh"
#include "cache_ops/write_stream.cuh"
#include "common/check.hpp"
#include "common/grid.hpp"

namespace mla::MLA_ARCH_NS {
namespace cache_ops {
namespace {

using kernels::blocks_for;

void write(const WriteParams& p, void* stream) {
  if (p.tokens == 0) return;
  if (streams(p)) {
    constexpr int kThreads = 32 * kStreamWarps;
    const StreamKernel kernel = stream_kernel_for(p);
    const dim3 grid(kernels::one_wave(reinterpret_cast<const void*>(kernel), kThreads,
                                      blocks_for(p.tokens, kStreamWarps))),
        block(kThreads);
    kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
    MLA_CHECK_LAUNCH("cache_ops::stream_kernel", grid, block, 0);
    return;
  }
  const dim3 grid(blocks_for(p.tokens, kWarps)), block(32 * kWarps);
  write_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("cache_ops::write_kernel", grid, block, 0);
}

void norm(const NormParams& p, void* stream) {
  if (p.rows == 0) return;
  const dim3 grid(blocks_for(p.rows, kWarps)), block(32 * kWarps);
  norm_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("cache_ops::norm_kernel", grid, block, 0);
}

void rotate(const RotateParams& p, void* stream) {
  if (p.tokens == 0 || p.rope == 0) return;
  const dim3 grid(blocks_for(p.tokens * p.heads, kWarps)), block(32 * kWarps);
  rotate_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("cache_ops::rotate_kernel", grid, block, 0);
}

void gather(const GatherParams& p, void* stream) {
  if (p.capacity == 0 || p.source.requests == 0) return;
  const dim3 grid(blocks_for(p.capacity, kMoveWarps * kRowsPerWarp)), block(32 * kMoveWarps);
  gather_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("cache_ops::gather_kernel", grid, block, 0);
}

template <class Unit>
void copy_units(const CopyParams& p, void* stream) {
  // Some ten pieces a thread; a block of the cache may be as small as one row.
  constexpr std::int64_t kPerBlock = 32 * kMoveWarps * 10;
  const std::int64_t units = p.row_bytes / static_cast<std::int64_t>(sizeof(Unit)) * p.block_size;
  const dim3 grid(static_cast<unsigned>(p.count), blocks_for(units, kPerBlock, 1024)), block(32 * kMoveWarps);
  copy_kernel<Unit><<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("cache_ops::copy_kernel", grid, block, 0);
}

void copy(const CopyParams& p, void* stream) {
  if (p.count == 0) return;
  switch (p.unit) {
    case 16:
      return copy_units<uint4>(p, stream);
    case 4:
      return copy_units<std::uint32_t>(p, stream);
    default:
      return copy_units<std::uint8_t>(p, stream);
  }
}

void channels(const ChannelsParams& p, void* stream) {
  if (p.tokens == 0) return;
  // Element by element; some grid strides long once the GPU is full.
  const dim3 grid(blocks_for(p.tokens * p.heads * p.width, 32 * kMoveWarps, 4096)), block(32 * kMoveWarps);
  channels_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("cache_ops::channels_kernel", grid, block, 0);
}

}  // namespace
}  // namespace cache_ops

const kernels::cache_ops::Table& cache_ops_table() {
  static constexpr kernels::cache_ops::Table kTable{&cache_ops::write,  &cache_ops::norm,
                                                    &cache_ops::rotate, &cache_ops::gather,
                                                    &cache_ops::copy,   &cache_ops::channels};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
