// SPDX-License-Identifier: Apache-2.0
// Entry points of the expanded form for one architecture.
#include <cuda_runtime.h>

#include "common/check.hpp"
#include "common/grid.hpp"
#include "expand/attend.cuh"
#include "expand/rows.cuh"

namespace mla::MLA_ARCH_NS {
namespace expand {
namespace {

using kernels::blocks_for;
using kernels::expand::Table;
using kernels::expand::Tile;
using kernels::expand::Variant;
using kernels::expand::Widths;

void offsets(const OffsetsParams& p, void* stream) {
  offsets_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("expand::offsets_kernel", dim3(1), dim3(kThreads), 0);
}

void rows(const RowsParams& p, void* stream) {
  if (p.chunk_rows == 0) return;
  const dim3 grid(blocks_for(p.chunk_rows, cache_ops::kMoveWarps * cache_ops::kRowsPerWarp)),
      block(32 * cache_ops::kMoveWarps);
  rows_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("expand::rows_kernel", grid, block, 0);
}

void attend(const AttendParams& p, const Variant& variant, void* stream) {
  const auto queue = static_cast<cudaStream_t>(stream);
  switch (variant.widths) {
    case Widths::k96x64:
      return flash::attend_96x64(p, variant, queue);
    case Widths::k128x128:
      return flash::attend_128x128(p, variant, queue);
    case Widths::k192x128:
      return flash::attend_192x128(p, variant, queue);
    case Widths::k256x256:
      return flash::attend_256x256(p, variant, queue);
  }
}

template <int kDqk, int kDv>
Tile tile_for(bool few) {
  return few ? flash::tile_of<flash::Few<__half, kDqk, kDv>>()
             : flash::tile_of<flash::Many<__half, kDqk, kDv>>();
}

Tile tile(const Variant& variant) {
  switch (variant.widths) {
    case Widths::k96x64:
      return tile_for<96, 64>(variant.few_queries);
    case Widths::k128x128:
      return tile_for<128, 128>(variant.few_queries);
    case Widths::k192x128:
      return tile_for<192, 128>(variant.few_queries);
    case Widths::k256x256:
      return tile_for<256, 256>(variant.few_queries);
  }
  return {};
}

void merge(const MergeParams& p, void* stream) {
  if (p.tokens == 0) return;
  const dim3 grid(blocks_for(p.tokens * p.heads, kThreads / 32)), block(kThreads);
  merge_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("expand::merge_kernel", grid, block, 0);
}

void tail(const TailParams& p, void* stream) {
  if (p.tokens == 0) return;
  const dim3 grid(blocks_for(p.tokens * p.heads * p.width, kThreads, 264)), block(kThreads);
  tail_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("expand::tail_kernel", grid, block, 0);
}

void fill(float* data, std::int64_t count, float value, void* stream) {
  if (count == 0) return;
  const dim3 grid(blocks_for(count, kThreads, 1024)), block(kThreads);
  fill_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(data, count, value);
  MLA_CHECK_LAUNCH("expand::fill_kernel", grid, block, 0);
}

}  // namespace
}  // namespace expand

const kernels::expand::Table& expand_table() {
  static constexpr kernels::expand::Table kTable{&expand::offsets, &expand::rows, &expand::attend,
                                                 &expand::merge,   &expand::tail, &expand::fill,
                                                 &expand::tile};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
