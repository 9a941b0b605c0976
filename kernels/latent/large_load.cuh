// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: where keys and queries come from. One warp fills the ring by tensor copies,
// three fetch the query rows of the next segment by cp.async, whatever their strides are.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "latent/large_shared.cuh"
#include "ptx/async_fence.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr unsigned kAllLanes = 0xffffffffU;

/// The cache as the copy engine sees it. latent: [blocks][block_size / 8][8 chunks][8 keys][64 channels];
/// rope: [blocks][block_size][64 channels].
struct Maps {
  CUtensorMap latent;
  CUtensorMap rope;
};

/// Fills the ring, block by block, across the borders of segments. A whole warp.
template <class Config>
struct KeyLoader {
  const Call& p;
  const Maps& maps;
  Control& control;
  const std::uint32_t shared;
  const int rank;
  const std::uint64_t policy = ptx::evict_first_policy();
  std::int32_t page = -1, offset = 0;  // of the box that this lane looks up for the warp

  static constexpr auto kAllCtas = static_cast<std::uint16_t>((1U << Config::kTiles) - 1);

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ void describe(Segment& s, const Walk& walk) const {
    const kernels::AttentionParams& a = p.attention;
    s.group = walk.group;
    s.first = walk.first();
    s.last = walk.last();
    s.origin = walk.origin;
    s.more = walk.origin + walk.last() < walk.end ? 1 : 0;
    const std::int32_t seen_by_all = a.causal ? s.r.keys - s.r.queries + 1 : s.r.keys;
    s.plain_end = max(0, seen_by_all) / kBlock - s.r.skip;
    s.plain_begin = s.r.skip > 0 ? s.r.first_blocks : 0;
    if (a.causal && a.window > 0) {
      s.plain_begin = max(s.plain_begin, (max(0, s.r.keys - a.window) + kBlock - 1) / kBlock - s.r.skip);
    }
    if (s.whole()) return;
    const Range& range = control.work.range;
    const std::int32_t first_range = range_of(range.total, range.count, s.origin);
    const std::int32_t last_range = range_of(range.total, range.count, s.origin + s.r.blocks - 1);
    s.first_range = first_range + range.base;
    s.parts = last_range - first_range + 1;
    const bool ends = range_begin(range.total, range.count, last_range + 1) == s.origin + s.r.blocks;
    s.patient = ends ? s.parts : s.parts - 1;
  }

  /// Every lane looks up a box: those of 8 or 16 blocks from block j on, of those before block `last`.
  __device__ __forceinline__ void look_up(const Request& r, std::int32_t request, std::int32_t j,
                                          std::int32_t last, int boxes) {
    const kernels::CacheParams& cache = p.attention.cache;
    const std::int32_t mine = j + lane() / boxes;
    const std::int32_t key = r.position(mine) + lane() % boxes * p.box;
    page = -1;
    const bool gap = key >= r.gap_begin && key + p.box <= r.gap_end;
    if (mine < last && key < r.end && !gap) {
      const std::int32_t column = cache.by_block_size.quotient(key);
      page = cache.block_table[request * cache.table_stride_request + column * cache.table_stride_column];
      offset = key - column * cache.block_size;
    }
  }

  /// Waits until 32 keys of a slot may be written over.
  __device__ __forceinline__ void wait_empty(int slot, int half, std::uint32_t parity) const {
    if (lane() == 0) {
      if constexpr (Config::kTiles == 1) {
        ptx::mbarrier_wait(ptx::smem(&control.empty[slot][half]), parity);
      } else {
        ptx::mbarrier_wait_cluster(ptx::smem(&control.empty[slot][half]), parity);
      }
    }
    __syncwarp();
  }

  /// Boxes begin .. end - 1 of the block whose boxes start at lane `turn`, those that are this CTA's to load,
  /// to all CTAs of the cluster.
  template <class Issue>
  __device__ __forceinline__ void load(int turn, int begin, int end, const Issue& issue) const {
#pragma unroll 1
    for (int x = begin + (Config::kTiles == 1 ? 0 : rank); x < end; x += Config::kTiles) {
      const std::int32_t at_page = __shfl_sync(kAllLanes, page, turn + x);
      const std::int32_t at_offset = __shfl_sync(kAllLanes, offset, turn + x);
      if (lane() == 0 && at_page >= 0) issue(static_cast<std::uint32_t>(x * p.box), at_offset, at_page);
      __syncwarp();
    }
  }
  __device__ __forceinline__ void load_latent(int turn, int begin, int end, std::uint32_t tile,
                                              std::uint32_t full) const {
    load(turn, begin, end, [&](std::uint32_t row, std::int32_t at_offset, std::int32_t at_page) {
      const std::uint32_t to = tile + row * (kLatent * 2);
      if constexpr (Config::kTiles == 1) {
        ptx::tma_load(to, &maps.latent, full, 0, 0, 0, at_offset / 8, at_page, policy);
      } else {
        ptx::tma_load_multicast(to, &maps.latent, full, 0, 0, 0, at_offset / 8, at_page, kAllCtas, policy);
      }
    });
  }
  __device__ __forceinline__ void load_rope(int turn, int end, std::uint32_t tile, std::uint32_t full) const {
    load(turn, 0, end, [&](std::uint32_t row, std::int32_t at_offset, std::int32_t at_page) {
      const std::uint32_t to = tile + kRopeAt + row * (kRope * 2);
      if constexpr (Config::kTiles == 1) {
        ptx::tma_load(to, &maps.rope, full, 0, at_offset, at_page, policy);
      } else {
        ptx::tma_load_multicast(to, &maps.rope, full, 0, at_offset, at_page, kAllCtas, policy);
      }
    });
  }

  __device__ __forceinline__ void run() {
    const int boxes = kBlock / p.box;  // of a block: 2 or 4
    int slot = 0, segment = 0;
    std::uint32_t parity = 1;
    for (Walk walk(control.work); walk.more(); walk.next(p, Config::kRows)) {
      Segment& s = control.segments[segment];
      {
        const bool known = walk.begin == control.work.range.begin;
        const Request r = known ? control.work.first : load_request(p, walk.request, Config::kRows);
        look_up(r, walk.request, walk.first(), walk.last(), boxes);
        if (lane() == 0) s.r = r;
      }
      segment = segment + 1 == kSegments ? 0 : segment + 1;
      const std::int32_t steps = walk.last() - walk.first();
      for (std::int32_t i = 0; i < steps; ++i) {
        const int turn = i * boxes % 32;
        if (turn == 0 && i > 0) look_up(s.r, walk.request, walk.first() + i, walk.last(), boxes);
        const unsigned wanted = __ballot_sync(kAllLanes, page >= 0) >> turn & ((1U << boxes) - 1);
        const std::uint32_t full = ptx::smem(&control.full[slot]);
        const std::uint32_t tile = shared + static_cast<std::uint32_t>(slot) * kSlotBytes;
        wait_empty(slot, 0, parity);
        if (lane() == 0) {
          ptx::mbarrier_expect(full, static_cast<std::uint32_t>(__popc(wanted) * p.box) * (kSlotBytes / 64));
        }
        load_latent(turn, 0, boxes / 2, tile, full);
        wait_empty(slot, 1, parity);
        load_latent(turn, boxes / 2, boxes, tile, full);
        load_rope(turn, boxes, tile, full);  // where the weights of all keys were
        if (lane() == 0) {
          if (i == 0) describe(s, walk);  // beside the first copies: it takes a while
          ptx::mbarrier_arrive(full);
        }
        __syncwarp();
        if (++slot == kSlots) {
          slot = 0;
          parity ^= 1;
        }
      }
    }
  }
};

/// Begins to fetch the query rows of a row group; `warps` warps, this one being `warp`. Rows past the
/// request's arrive as zeros.
template <class Config>
__device__ __forceinline__ void fetch_query(const Call& p, std::uint32_t shared, int rank,
                                            std::int32_t first_query, std::int32_t queries,
                                            std::int32_t group, int warp, int warps) {
  const auto lane = static_cast<std::uint32_t>(threadIdx.x) % 32;
  const kernels::TensorParams& q = p.attention.q;
  const auto* const data = static_cast<const typename Config::Element*>(q.data);
  const std::int32_t first = group * Config::kRows + rank * 64;
  const std::int32_t rows = queries * p.attention.num_heads - first;
#pragma unroll 2
  for (auto row = static_cast<std::uint32_t>(warp); row < 64; row += static_cast<std::uint32_t>(warps)) {
    const bool exists = static_cast<std::int32_t>(row) < rows;
    const std::int32_t r = exists ? first + static_cast<std::int32_t>(row) : 0;
    const std::int32_t query = p.by_heads.quotient(r);
    const typename Config::Element* const from = data + (first_query + query) * q.stride_token +
                                                 (r - query * p.attention.num_heads) * q.stride_head +
                                                 lane * 8;
    const std::uint32_t to =
        shared + kQueryAt + row * 128 + ((lane % 8 ^ row % 8) << 4) + lane / 8 * kChunkBytes;
    const int bytes = exists ? 16 : 0;
    ptx::cp_async_16(to, from, bytes);
    ptx::cp_async_16(to + 4 * kChunkBytes, from + kHalf, bytes);
    if (lane < 8) ptx::cp_async_16(to + 8 * kChunkBytes, from + kLatent, bytes);
  }
  ptx::cp_async_commit();
}
/// Asks for the lines of the query rows of a row group, so that they come from the L2 when they are fetched.
template <class Config>
__device__ __forceinline__ void prefetch_query(const Call& p, int rank, std::int32_t first_query,
                                               std::int32_t queries, std::int32_t group, int warp,
                                               int warps) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const kernels::TensorParams& q = p.attention.q;
  const auto* const data = static_cast<const typename Config::Element*>(q.data);
  const std::int32_t first = group * Config::kRows + rank * 64;
  const std::int32_t rows = min(64, queries * p.attention.num_heads - first);
#pragma unroll 1
  for (std::int32_t i = warp * 32 + lane; i < rows * 9; i += warps * 32) {
    const std::int32_t r = first + i / 9;
    const std::int32_t query = p.by_heads.quotient(r);
    ptx::prefetch_l2(data + (first_query + query) * q.stride_token +
                     (r - query * p.attention.num_heads) * q.stride_head + i % 9 * 64);
  }
}

/// Until this warp's share has landed, and says so.
__device__ __forceinline__ void finish_query(std::uint64_t& barrier) {
  ptx::cp_async_wait<0>();
  ptx::fence_async_shared();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::smem(&barrier));
}

/// The query of the first segment, by the values' warps, which have nothing else to do yet.
template <class Config>
__device__ __forceinline__ void load_first_query(const Call& p, Control& control, std::uint32_t shared,
                                                 int rank, int warp) {
  const Work& work = control.work;
  fetch_query<Config>(p, shared, rank, work.first.first_query, work.first.queries, work.range.group, warp,
                      kValuesWarps);
  finish_query(control.first_query_full);
}

/// The queries of all other segments; `warps` warps, this one being `warp`.
template <class Config>
__device__ __forceinline__ void load_queries(const Call& p, Control& control, std::uint32_t shared, int rank,
                                             int warp, int warps) {
  std::uint32_t parity = 0;
  Walk walk(control.work);
  if (!walk.more()) return;
  for (walk.next(p, Config::kRows); walk.more(); walk.next(p, Config::kRows)) {
    prefetch_query<Config>(p, rank, walk.first_query, walk.queries, walk.group, warp, warps);
    ptx::mbarrier_wait(ptx::smem(&control.query_empty), parity);
    fetch_query<Config>(p, shared, rank, walk.first_query, walk.queries, walk.group, warp, warps);
    finish_query(control.query_full);
    parity ^= 1;
  }
}

}  // namespace mla::MLA_ARCH_NS::latent::large
