// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: where keys and queries come from. One warp fills the ring by tensor copies, three fetch
// the query rows of the next segment by cp.async, whatever their strides are.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "latent/large_shared.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr unsigned kAllLanes = 0xffffffffU;

/// The cache as the copy engine sees it. latent: [blocks][block_size / 8][8 chunks][8 keys][64 channels]; rope:
/// [blocks][block_size][64 channels].
struct Maps {
  CUtensorMap latent;
  CUtensorMap rope;
};

/// Fills the ring, block by block, across the borders of segments. A whole warp.
template <class Config>
__device__ __forceinline__ void load_keys(const Call& p, const Maps& maps, Control& control,
                                          std::uint32_t shared, int rank) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const kernels::CacheParams& cache = p.attention.cache;
  const std::uint64_t policy = ptx::evict_first_policy();
  const int boxes = kBlock / p.box;  // of a block: 2 or 4
  int slot = 0, segment = 0;
  std::uint32_t parity = 1;
  for (Walk walk(p, control.range.range, Config::kRows); walk.more(); walk.next(p, Config::kRows)) {
    Segment& s = control.segments[segment];
    if (lane == 0) {
      s.r = load_request(p, walk.request, Config::kRows);
      s.group = walk.group;
      s.first = walk.first();
      s.last = walk.last();
      s.origin = walk.origin;
      s.more = walk.origin + walk.last() < walk.end ? 1 : 0;
    }
    __syncwarp();
    segment = (segment + 1) % kSegments;
    std::int32_t page = -1, offset = 0;  // of the box that this lane looks up for the warp
    const std::int32_t padded = (s.last - s.first + Config::kStep - 1) / Config::kStep * Config::kStep;
    for (std::int32_t i = 0; i < padded; ++i) {
      const int turn = i * boxes % 32;
      if (turn == 0) {
        const std::int32_t mine = s.first + i + lane / boxes;
        const std::int32_t key = s.r.position(mine) + lane % boxes * p.box;
        page = -1;
        const bool gap = key >= s.r.gap_begin && key + p.box <= s.r.gap_end;
        if (mine < s.last && key < s.r.end && !gap) {
          const std::int32_t column = cache.by_block_size.quotient(key);
          page = cache.block_table[walk.request * cache.table_stride_request + column * cache.table_stride_column];
          offset = key - column * cache.block_size;
        }
      }
      if (lane == 0) ptx::mbarrier_wait(ptx::smem(&control.empty[slot]), parity);
      const std::uint32_t full = ptx::smem(&control.full[slot]);
      const std::uint32_t tile = shared + Config::kRingAt + static_cast<std::uint32_t>(slot) * kTileBytes;
      const unsigned wanted = __ballot_sync(kAllLanes, page >= 0) >> turn & ((1U << boxes) - 1);
      if (lane == 0) {
        ptx::mbarrier_arrive_expect(full, static_cast<std::uint32_t>(__popc(wanted) * p.box) * (kTileBytes / 64));
      }
#pragma unroll 1
      for (int x = 0; x < boxes; ++x) {
        const std::int32_t at_page = __shfl_sync(kAllLanes, page, turn + x);
        const std::int32_t at_offset = __shfl_sync(kAllLanes, offset, turn + x);
        if (lane == 0 && at_page >= 0) {
          const auto row = static_cast<std::uint32_t>(x * p.box);
          ptx::tma_load(tile + row * (kHalfLatent * 2), &maps.latent, full, 0, 0, 4 * rank, at_offset / 8, at_page,
                        policy);
          ptx::tma_load(tile + kRopeAt + row * (kHalfRope * 2), &maps.rope, full, kHalfRope * rank, at_offset, at_page,
                        policy);
        }
      }
      if (++slot == Config::kSlots) {
        slot = 0;
        parity ^= 1;
      }
    }
  }
}

/// Fetches the query rows of every segment: `threads` threads (whole warps), this one being `thread`. Rows past the
/// request's arrive as zeros.
template <class Config>
__device__ __forceinline__ void load_queries(const Call& p, Control& control, std::uint32_t shared, int rank,
                                             int warp, int warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const kernels::TensorParams& q = p.attention.q;
  const auto* const data = static_cast<const typename Config::Element*>(q.data);
  std::uint32_t parity = 1;
  for (Walk walk(p, control.range.range, Config::kRows); walk.more(); walk.next(p, Config::kRows)) {
    const std::int32_t rows = walk.queries * p.attention.num_heads;
    const std::int32_t first = walk.group * Config::kRows;
    const auto row_data = [&](std::int32_t row) {
      row = min(first + row, rows - 1);
      const std::int32_t query = p.by_heads.quotient(row);
      return data + (walk.first_token + query) * q.stride_token + (row - query * p.attention.num_heads) * q.stride_head;
    };
    ptx::mbarrier_wait(ptx::smem(&control.query_empty), parity);
    for (int eight = warp; eight < Config::kRows / 8; eight += warps) {
      const std::uint32_t tile = shared + Config::kQueryAt + static_cast<std::uint32_t>(eight / 8) * kTileBytes;
      const auto base = static_cast<std::uint32_t>(eight % 8 * 8);
#pragma unroll 4
      for (std::uint32_t r = 0; r < 8; ++r) {  // a lane has 16 bytes of the latent part of each row
        const auto row = static_cast<std::int32_t>(static_cast<std::uint32_t>(eight) * 8 + r);
        const auto piece = static_cast<std::uint32_t>(lane);
        ptx::cp_async_16(tile + piece / 8 * 8192 + (base + r) * 128 + ((piece % 8 ^ r) << 4),
                         row_data(row) + kHalfLatent * rank + lane * 8, first + row < rows ? 16 : 0);
      }
      const auto r = static_cast<std::uint32_t>(lane / 4);  // and 16 bytes of the rotary part of one row
      const auto piece = static_cast<std::uint32_t>(lane % 4);
      const std::int32_t row = eight * 8 + lane / 4;
      ptx::cp_async_16(tile + kRopeAt + (base + r) * 64 + ((piece ^ (r / 2 & 3)) << 4),
                       row_data(row) + 2 * kHalfLatent + kHalfRope * rank + lane % 4 * 8, first + row < rows ? 16 : 0);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    ptx::fence_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(ptx::smem(&control.query_full));
    parity ^= 1;
  }
}

}  // namespace mla::MLA_ARCH_NS::latent::large
