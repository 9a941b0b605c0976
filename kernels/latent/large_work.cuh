// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: who works on which blocks. Everything is derived on the device from the lengths
// as they are at run time, so a captured graph can be replayed with others.
//
//   units    |- request 0 -|- request 1, rows 0.. -|- request 1, rows 128.. -|- 2 -|     in blocks of 64 keys
//   ranges   |-------0-------|-------1-------|-------2-------|-------3-------|    N c / C .. N (c+1) / C
//
// A *unit* is a group of rows of a request. A range ends one unit, does some whole and begins another: each
// piece is a Segment. A unit that lies in one range is written to the output at once.
#pragma once

#include <cstdint>

#include "common/visible.cuh"
#include "latent/lengths.cuh"
#include "ptx/global.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr int kThreads = 512;
/// Keys of a block, the unit in which work is dealt out.
inline constexpr std::int32_t kBlock = 64;

/// One call. `clusters` and `row_groups` of the frame say how many ranges there are; a range's blocks may
/// belong to any row group.
struct Call : kernels::latent::Params {
  std::int32_t ranges = 1;  // pairs of CTAs launched
  std::int32_t box = 32;    // keys of a tensor copy: 32, or 16 for page sizes that 32 does not divide
};

/// What a request's keys are cut into. Blocks that no query sees are left out: with a window there are up to
/// two runs.
struct Request : Lengths {
  std::int32_t groups = 0;                  // of rows; 0 without queries
  std::int32_t blocks = 1;                  // of a unit; at least 1, or an empty row would not be written
  std::int32_t first_blocks = 0, skip = 0;  // blocks of the first run, and blocks left out behind them
  std::int32_t end = 0, gap_begin = 0,
               gap_end = 0;  // keys beyond end and those of the gap are seen by no query

  /// First key of block j.
  __device__ __forceinline__ std::int32_t position(std::int32_t j) const {
    return kBlock * (j < first_blocks ? j : j + skip);
  }
};

__device__ __forceinline__ Request load_request(const Call& p, std::int32_t index, std::int32_t group_rows) {
  const kernels::AttentionParams& a = p.attention;
  Request r{Lengths(p, index)};
  r.groups = (r.queries * a.num_heads + group_rows - 1) / group_rows;
  const KeyRuns runs = visible_keys(a, r.keys - r.queries, r.keys - 1, r.keys);
  const bool two = runs.second_begin > 0;
  r.end = two ? runs.second_begin + runs.count - runs.first_end : runs.count;
  const std::int32_t all = (r.end + kBlock - 1) / kBlock;
  r.first_blocks = all;
  if (two) {
    r.gap_begin = runs.first_end;
    r.gap_end = runs.second_begin;
    r.first_blocks = (runs.first_end + kBlock - 1) / kBlock;
    r.skip = max(0, runs.second_begin / kBlock - r.first_blocks);
  }
  r.blocks = max(1, all - r.skip);
  return r;
}

/// The range of a cluster, and where its first block lies.
struct Range {
  std::int32_t begin = 0, end = 0;      // blocks, counted over all units
  std::int32_t request = 0, group = 0;  // of the unit that `begin` lies in
  std::int32_t origin = 0;              // that unit's first block
  std::int32_t total = 0;               // blocks of all units
  std::int32_t count = 1;               // ranges with work
  std::int32_t base = 0;                // number of the first of them
};

/// What the warps of a CTA know of its range, in shared memory.
struct Work {
  Range range;
  Request first;  // of its first unit
};

/// First block of range c: total c / count, mostly without a division of 64 bits.
__device__ __forceinline__ std::int32_t range_begin(std::int32_t total, std::int32_t count, std::int32_t c) {
  const std::int32_t each = total / count, rest = total - each * count;
  if (count < 1 << 15) return each * c + rest * c / count;
  return each * c + static_cast<std::int32_t>(std::int64_t{rest} * c / count);
}
/// The range that block x lies in, mostly without one either.
__device__ __forceinline__ std::int32_t range_of(std::int32_t total, std::int32_t count, std::int32_t x) {
  if (x < 1 << 15 && count < 1 << 15) return ((x + 1) * count - 1) / total;
  return static_cast<std::int32_t>(((std::int64_t{x} + 1) * count - 1) / total);
}

/// All blocks laid end to end and shared out evenly. One warp, each of whose lanes looks at some requests.
__device__ __forceinline__ void share_out(const Call& p, std::int32_t c, std::int32_t group_rows,
                                          Work& work) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const std::int32_t requests = p.attention.num_requests;
  const std::int32_t each = (requests + 31) / 32;
  const std::int32_t first = min(lane * each, requests), last = min(first + each, requests);
  std::int32_t mine = 0;
  Request r;
#pragma unroll 4
  for (std::int32_t i = first; i < last; ++i) {
    r = load_request(p, i, group_rows);
    mine += r.blocks * r.groups;
  }
  std::int32_t inclusive = mine;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const std::int32_t y = __shfl_up_sync(0xffffffffU, inclusive, d);
    if (lane >= d) inclusive += y;
  }
  const std::int32_t total = __shfl_sync(0xffffffffU, inclusive, 31);
  const std::int32_t count = min(p.ranges, total);
  const std::int32_t begin = c < count ? range_begin(total, count, c) : 0;
  const std::int32_t end = c < count ? range_begin(total, count, c + 1) : 0;
  std::int32_t origin = inclusive - mine;
  if (begin >= end || begin < origin || begin >= inclusive) return;  // one lane goes on
  std::int32_t request = first;
  if (each > 1) {  // else r is the one
    for (;; ++request) {
      r = load_request(p, request, group_rows);
      if (begin < origin + r.blocks * r.groups) break;
      origin += r.blocks * r.groups;
    }
  }
  const std::int32_t group = r.groups > 1 ? (begin - origin) / r.blocks : 0;
  work.first = r;
  work.range = {.begin = begin,
                .end = end,
                .request = request,
                .group = group,
                .origin = origin + group * r.blocks,
                .total = total,
                .count = count,
                .base = 0};
}

/// Where every request has ranges of its own: the same for a request alone or in any batch. One thread.
__device__ __forceinline__ void find_own(const Call& p, std::int32_t c, std::int32_t group_rows, Work& work) {
  Range& range = work.range;
  const std::int32_t unit = p.by_per_request.quotient(c);
  const std::int32_t index = c - unit * p.per_request;
  range.request = unit / p.row_groups;
  range.group = unit - range.request * p.row_groups;
  range.base = unit * p.per_request;
  const Request r = load_request(p, range.request, group_rows);
  range.total = r.blocks;
  range.count = min(p.per_request, r.blocks);
  if (range.group >= r.groups || index >= range.count) return;  // a longer request has more row groups
  range.begin = range_begin(range.total, range.count, index);
  range.end = range_begin(range.total, range.count, index + 1);
  work.first = r;
}

/// Fills `work`, where thread 0 has put an empty range, for cluster c. All threads of the CTA must call it.
__device__ __forceinline__ void find_range(const Call& p, std::int32_t c, std::int32_t group_rows,
                                           Work& work) {
  if (threadIdx.x < 32) {
    __syncwarp();
    if (p.per_request == 0) {
      share_out(p, c, group_rows, work);
    } else if (threadIdx.x == 0) {
      find_own(p, c, group_rows, work);
    }
  }
  __syncthreads();
}

/// Asks for the lines that cluster c reads first, before it may read them: a prefetch to the L2 reads nothing
/// that anybody could see. Where its keys begin is a guess: all requests as long as the page table is wide.
/// One warp.
__device__ __forceinline__ void prefetch_first(const Call& p, std::int32_t c) {
  if (p.slices != nullptr) return;  // the launch before this one has yet to write them, and what they name
  const kernels::AttentionParams& a = p.attention;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const std::int32_t request = min(lane * 32, a.num_requests - 1);
  ptx::prefetch_l2(a.seq_lens + request * a.seq_lens_stride);
  ptx::prefetch_l2(a.cu_seqlens_q + (request + 1) * a.cu_seqlens_stride);
  if (lane != 0 || p.per_request > 0) return;
  const kernels::CacheParams& cache = a.cache;
  const float share = static_cast<float>(c) / static_cast<float>(p.ranges);
  const float units = share * static_cast<float>(a.num_requests * p.row_groups);
  const auto unit = static_cast<std::int32_t>(units);
  const auto column =
      static_cast<std::int32_t>((units - static_cast<float>(unit)) * static_cast<float>(p.table_columns - 1));
  ptx::prefetch_l2(cache.block_table +
                   min(unit / p.row_groups, a.num_requests - 1) * cache.table_stride_request +
                   column * cache.table_stride_column);
}

/// Walks over the segments of a range. Few registers: it runs in warps that have 40 of them.
struct Walk {
  std::int32_t request, group, origin, begin, end;
  std::int32_t first_query, queries, groups, blocks;  // of the request, see Request

  __device__ __forceinline__ explicit Walk(const Work& work)
      : request(work.range.request),
        group(work.range.group),
        origin(work.range.origin),
        begin(work.range.begin),
        end(work.range.end),
        first_query(work.first.first_query),
        queries(work.first.queries),
        groups(work.first.groups),
        blocks(work.first.blocks) {}
  __device__ __forceinline__ bool more() const { return begin < end; }
  /// Blocks first() .. last() - 1 of the unit.
  __device__ __forceinline__ std::int32_t first() const { return begin - origin; }
  __device__ __forceinline__ std::int32_t last() const { return min(blocks, end - origin); }
  __device__ __forceinline__ void next(const Call& p, std::int32_t group_rows) {
    begin = origin + last();
    if (!more()) return;
    origin += blocks;
    if (++group < groups) return;
    group = 0;
    do {
      ++request;
      load(p, group_rows);
    } while (groups == 0);
  }

 private:
  __device__ __forceinline__ void load(const Call& p, std::int32_t group_rows) {
    const Request r = load_request(p, request, group_rows);
    first_query = r.first_query;
    queries = r.queries;
    groups = r.groups;
    blocks = r.blocks;
  }
};

/// What the warpgroups that compute must know of a segment, in shared memory.
struct Segment {
  Request r;
  std::int32_t group = 0;
  std::int32_t first = 0, last = 0;  // blocks of the unit
  std::int32_t origin = 0;
  std::int32_t plain_begin = 0, plain_end = 0;  // every row sees every key of these blocks
  std::int32_t more = 0;                        // another segment follows
  // Of a cut unit: the range that has its first part, how many parts there are, and into how many slices the
  // result is cut to be added up by those who may wait for it: all but the last part's CTA, if that has
  // another unit to begin.
  std::int32_t first_range = 0, parts = 1, patient = 1;

  [[nodiscard]] __device__ __forceinline__ bool whole() const { return first == 0 && last == r.blocks; }
};

}  // namespace mla::MLA_ARCH_NS::latent::large
