// SPDX-License-Identifier: Apache-2.0
// Instances of the paged prefill kernel and their launch.
#include <cuda_runtime.h>

#include "common/block_memory.cuh"
#include "common/check.hpp"
#include "prefill_paged/paged.cuh"

namespace mla::MLA_ARCH_NS {
namespace prefill_paged {
namespace {

using kernels::expand::Tile;
using kernels::expand::Widths;
using kernels::prefill_paged::widest_nope;

inline constexpr int kSlice = kLargeBlocks ? 64 : 32;  // else a block has 163 KB at most

template <class T>
using Narrow = Traits<T, 96, 64, widest_nope(Widths::k96x64), 64, kSlice, 1>;
template <class T>
using Square = Traits<T, 128, 128, widest_nope(Widths::k128x128), 64, kSlice, 1>;
template <class T>
using Usual = Traits<T, 192, 128, widest_nope(Widths::k192x128), 64, kSlice, 1>;
template <class T>
using Wide = Traits<T, 256, 256, widest_nope(Widths::k256x256), 32, kSlice, 2>;

template <class Tr>
void launch(const Params& p, void* stream) {
  const std::int64_t blocks =
      static_cast<std::int64_t>(p.attend.segments.count) * p.attend.heads * p.attend.tiles;
  if (blocks == 0) return;
  constexpr std::size_t kShared = sizeof(typename Tr::Shared);
  MLA_CHECK_CUDA(cudaFuncSetAttribute(paged_kernel<Tr>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kShared)));
  const dim3 grid(static_cast<unsigned>(blocks)), block(Tr::kThreads);
  paged_kernel<Tr><<<grid, block, kShared, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("prefill_paged::paged_kernel", grid, block, kShared);
}

template <class T>
void attend_as(const Params& p, Widths widths, void* stream) {
  switch (widths) {
    case Widths::k96x64:
      return launch<Narrow<T>>(p, stream);
    case Widths::k128x128:
      return launch<Square<T>>(p, stream);
    case Widths::k192x128:
      return launch<Usual<T>>(p, stream);
    case Widths::k256x256:
      return launch<Wide<T>>(p, stream);
  }
}

void attend(const Params& p, Widths widths, DType dtype, void* stream) {
  dtype == DType::kF16 ? attend_as<__half>(p, widths, stream) : attend_as<__nv_bfloat16>(p, widths, stream);
}

template <class Tr>
Tile tile_of() {
  return {Tr::kBlockM, Tr::kBlockN, sizeof(typename Tr::Shared)};
}

Tile tile(Widths widths) {
  switch (widths) {
    case Widths::k96x64:
      return tile_of<Narrow<__half>>();
    case Widths::k128x128:
      return tile_of<Square<__half>>();
    case Widths::k192x128:
      return tile_of<Usual<__half>>();
    case Widths::k256x256:
      return tile_of<Wide<__half>>();
  }
  return {};
}

}  // namespace
}  // namespace prefill_paged

const kernels::prefill_paged::Table& prefill_paged_table() {
  static constexpr kernels::prefill_paged::Table kTable{&prefill_paged::attend, &prefill_paged::tile};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
