// SPDX-License-Identifier: Apache-2.0
// Who works on which keys. Everything is derived on the device from the lengths as they are at run time, so a
// captured graph can be replayed with others; both kernels (attention and merge) derive the same.
//
//   units    |--- unit 0 ---|-- unit 1 --|- 2 -|------- unit 3 -------|     in tiles; an empty unit counts as one
//   parts    |-----0-----|-----1-----|-----2-----|-----3-----|----4---|     even: N c / C .. N (c+1) / C
//
// Part 0 gives a partial result of unit 0; part 1 ends unit 0 and does a piece of unit 1; ... A unit that
// lies in one part is written to the output at once. With `splits`, each unit is cut into that many parts of
// its own instead (fewer if it has fewer tiles), which makes a request's bits independent of its neighbours.
#pragma once

#include <cstdint>

#include "common/visible.cuh"
#include "splitkv/table.hpp"

namespace mla::MLA_ARCH_NS::splitkv {

using kernels::splitkv::Params;

inline constexpr int kThreads = 256;

struct Unit {
  std::int32_t request = 0;      // row of the block table
  std::int32_t first_token = 0;  // row of q of its first query
  std::int32_t queries = 0;
  std::int32_t keys = 0;  // of the request, new tokens included
  std::int32_t tiles = 1;
  KeyRuns runs;  // keys that any of its queries sees; with top-k: entries of its index

  __device__ __forceinline__ std::int32_t rows(const Params& p) const {
    return queries * p.attention.num_heads;
  }
  /// Position of query i.
  __device__ __forceinline__ std::int32_t position(std::int32_t i) const { return keys - queries + i; }
};

__device__ __forceinline__ std::int32_t tiles_of(const Params& p, const KeyRuns& runs) {
  return max(1, (runs.count + p.tile - 1) / p.tile);
}

__device__ __forceinline__ Unit load_unit(const Params& p, std::int32_t u) {
  const kernels::AttentionParams& a = p.attention;
  Unit unit;
  if (a.topk > 0) {
    unit.request = find_request(a, u);
    unit.first_token = u;
    unit.queries = 1;
    unit.keys = unit.request < a.num_requests ? a.seq_lens[unit.request * a.seq_lens_stride] : 0;
    unit.runs.count = unit.keys > 0 ? a.topk : 0;
    unit.tiles = tiles_of(p, KeyRuns{0, 0, a.topk});
    return unit;
  }
  unit.request = u;
  unit.first_token = a.cu_seqlens_q[u * a.cu_seqlens_stride];
  unit.queries = a.cu_seqlens_q[(u + 1) * a.cu_seqlens_stride] - unit.first_token;
  unit.keys = a.seq_lens[u * a.seq_lens_stride];
  if (unit.queries > 0) unit.runs = visible_keys(a, unit.position(0), unit.keys - 1, unit.keys);
  unit.tiles = tiles_of(p, unit.runs);
  return unit;
}

/// load_unit(...).tiles without the search for a token's request.
__device__ __forceinline__ std::int32_t load_tiles(const Params& p, std::int32_t u) {
  if (p.attention.topk > 0) return tiles_of(p, KeyRuns{0, 0, p.attention.topk});
  return load_unit(p, u).tiles;
}

/// Tiles begin..end-1 of a part, and the unit that tile `begin` belongs to. Tiles count from `origin`'s 0:
/// over all units, or with own splits within the unit.
struct Part {
  std::int32_t begin = 0, end = 0;
  std::int32_t unit = 0;
  std::int32_t unit_begin = 0;  // first tile of the unit
  std::int32_t total = 0;       // tiles dealt out
  std::int32_t count = 1;       // parts that have work
};

/// Scratch of locate(), in shared memory.
struct Locator {
  std::int32_t warp_sum[kThreads / 32];
  std::int32_t unit, unit_begin;
};

/// Inclusive sum over the block; `sum` is the total. All threads must call it.
__device__ __forceinline__ std::int32_t scan_block(std::int32_t x, Locator& shared, std::int32_t& sum) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int d = 1; d < 32; d *= 2) {
    const std::int32_t y = __shfl_up_sync(0xffffffffU, x, d);
    if (lane >= d) x += y;
  }
  __syncthreads();  // the last call's sums have been read
  if (lane == 31) shared.warp_sum[warp] = x;
  __syncthreads();
  sum = 0;
  std::int32_t before = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += shared.warp_sum[w];
    sum += shared.warp_sum[w];
  }
  return x + before;
}

/// The work of part c; begin == end if it has none. All threads must call it.
__device__ __forceinline__ Part locate(const Params& p, std::int32_t c, Locator& shared) {
  Part part;
  if (p.splits > 0) {
    part.unit = c / p.splits;
    const std::int32_t index = c % p.splits;
    part.total = load_tiles(p, part.unit);
    part.count = min(p.splits, part.total);
    if (index < part.count) {
      part.begin = static_cast<std::int32_t>(std::int64_t{part.total} * index / part.count);
      part.end = static_cast<std::int32_t>(std::int64_t{part.total} * (index + 1) / part.count);
    }
    return part;
  }
  std::int32_t inclusive = 0;
  std::int32_t tiles = 0;
  for (std::int32_t first = 0; first < p.units; first += kThreads) {
    const std::int32_t u = first + static_cast<std::int32_t>(threadIdx.x);
    std::int32_t sum = 0;
    tiles = u < p.units ? load_tiles(p, u) : 0;
    inclusive = scan_block(tiles, shared, sum);
    part.total += sum;
  }
  part.count = min(p.parts, part.total);
  if (c >= part.count) return part;
  part.begin = static_cast<std::int32_t>(std::int64_t{part.total} * c / part.count);
  part.end = static_cast<std::int32_t>(std::int64_t{part.total} * (c + 1) / part.count);
  std::int32_t before = 0;
  for (std::int32_t first = 0; first < p.units; first += kThreads) {
    const std::int32_t u = first + static_cast<std::int32_t>(threadIdx.x);
    std::int32_t sum = part.total;
    if (p.units > kThreads) {  // else the first scan was the whole one
      tiles = u < p.units ? load_tiles(p, u) : 0;
      inclusive = scan_block(tiles, shared, sum);
    }
    const std::int32_t end = before + inclusive;
    if (u < p.units && part.begin < end && part.begin >= end - tiles) {
      shared.unit = u;
      shared.unit_begin = end - tiles;
    }
    before += sum;
    if (before > part.begin) break;
  }
  __syncthreads();
  part.unit = shared.unit;
  part.unit_begin = shared.unit_begin;
  return part;
}

/// Slot of part c's partial result; `from_start`: of the unit that begins in it, rather than of the one that
/// it enters in the middle of.
__device__ __forceinline__ std::int64_t slot_of(const Params& p, std::int32_t c, bool from_start) {
  return p.splits > 0 ? c : 2 * std::int64_t{c} + (from_start ? 1 : 0);
}

}  // namespace mla::MLA_ARCH_NS::splitkv
