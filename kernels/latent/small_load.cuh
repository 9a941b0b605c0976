// SPDX-License-Identifier: Apache-2.0
// Load warps of the small-work kernel: they walk over the CTA's pieces, post each, and keep the ring filled
// across the borders of pieces: a slot of queries, then the piece's cache rows. Where rows come from is
// decided here alone.
#pragma once

#include <cuda.h>

#include "common/paging.cuh"
#include "latent/small_traits.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// Starts the copies of a row group's queries and counts them, by kLoadThreads threads: eight a row and box.
/// Rows and rotary channels that do not exist are zeros. `place`: a slot of the ring, or a buffer.
template <class Config>
__device__ __forceinline__ void load_queries(const Params& p, const Shared<Config>& shared,
                                             const Lengths& rows, std::uint32_t place, std::uint32_t thread) {
  constexpr std::uint32_t kRowsAtOnce = kLoadThreads / 8;
  const kernels::AttentionParams& a = p.attention;
  const std::uint32_t chunk = thread % 8;
  const int rope_bytes = static_cast<std::int32_t>(chunk * 8) < a.rope ? kLane : 0;
#pragma unroll
  for (std::uint32_t first = 0; first < Config::kRows; first += kRowsAtOnce) {
    const std::uint32_t r = first + thread / 8;
    const auto row = static_cast<std::int32_t>(blockIdx.y * Config::kRows + r);
    const bool there = row < rows.queries * a.num_heads;
    const std::int32_t query = there ? p.by_heads.quotient(row) : 0;
    const std::int64_t token = std::int64_t{rows.first_query} + query;
    const std::int64_t head = there ? row - query * a.num_heads : 0;
    const auto* from = static_cast<const typename Config::T*>(a.q.data) + token * a.q.stride_token +
                       head * a.q.stride_head + chunk * 8;
    if (!there) from = static_cast<const typename Config::T*>(a.q.data);
    const std::uint32_t to = shared.queries(place) + in_box(r, chunk);
#pragma unroll
    for (int box = 0; box < Config::kBoxes; ++box) {
      const int bytes = !there ? 0 : box < Config::kLatentBoxes ? kLane : rope_bytes;
      ptx::cp_async_16(to + box * Config::kQueryBox, bytes > 0 ? from + box * 64 : from, bytes);
    }
  }
  ptx::mbarrier_arrive_cp_async(shared.queries_full(place));
}

/// One thread's side. A unit of 32 entries is fetched
///   by the first load warp alone, with one copy of the copy engine, where units lie side by side in pages of
///     whole rows; blocks of the next 32 units are looked up ahead, one a lane: the fewer ask for a line of the
///     block table, the sooner all CTAs have it;
///   else by cp.async, eight lanes a row, a line of 128 bytes at a time, rows r and r + 4 in turn: each load warp
///     has an octet of entries. Blocks of the next four units are looked up ahead: lane 8 u + r holds row r of
///     unit u.
template <class Config>
class Loader {
 public:
  __device__ __forceinline__ Loader(const Params& p, const CUtensorMap& units, const Shared<Config>& shared)
      : units_(units), walk_(Config::kRows), warp_(threadIdx.x / 32 - kMathWarps), lane_(threadIdx.x % 32) {
    to_ = shared.at(Config::kRingAt) + in_box(lane_ / 8, lane_ % 8);
    rope_bytes_ = lane_ % 8 * 8 < p.attention.rope ? kLane : 0;
  }

  /// While the launch before this one still runs: asks for the lines of what is read first. The table and the
  /// lengths may yet be written; a line in the L2 is written there.
  __device__ __forceinline__ void prepare(const Params& p) {
    if (p.by_units && threadIdx.x == kMathThreads) ptx::prefetch_map(&units_);
    foreseen_ = walk_.foresee(p, piece_);
    if (!foreseen_) return;
    const kernels::AttentionParams& a = p.attention;
    if (!p.by_units || (warp_ == 0 && lane_ < Config::kSlots)) {
      if (const std::int32_t* at = next_entry(p, piece_, 0); at != nullptr) ptx::prefetch_l2(at);
    }
    if (threadIdx.x == kMathThreads) {
      ptx::prefetch_l2(a.seq_lens + piece_.request * a.seq_lens_stride);
      ptx::prefetch_l2(a.cu_seqlens_q + piece_.request * a.cu_seqlens_stride);
    }
  }
  /// Before the CTA's first barrier: the first look-up, where it needs no length, and the lengths. One thread
  /// reads them for all: a hundred CTAs with twelve warps each would queue up for the same line.
  __device__ __forceinline__ void begin(const Params& p, const Shared<Config>& shared) {
    if (foreseen_) look_up(p, piece_, 0);
    if (p.per_request > 0 && threadIdx.x == kMathThreads) {
      shared.lengths() = Lengths(p, piece_.request);
    }
  }

  /// All pieces of this CTA.
  __device__ __forceinline__ void run(const Params& p, const Shared<Config>& shared) {
    if (!walk_.first(p, shared.lengths(), piece_)) {
      post(p, shared, piece_, false);
      return;
    }
    if (!foreseen_) look_up(p, piece_, 0);
    for (;;) {
      if (pieces_ > 0 || p.per_request == 0) {
        load_queries(p, shared, piece_.rows, free_place(p, shared), threadIdx.x - kMathThreads);
      }
      if constexpr (!Config::kWide) ++loaded_;
      load(p, shared, piece_);
      if (piece_.last) return;
      walk_.next(p, piece_);
      look_up(p, piece_, 0);
    }
  }

 private:
  static constexpr std::uint16_t kPair = 3;  // both CTAs

  /// Entries at and behind this one are not the CTA's.
  static __device__ __forceinline__ std::int32_t entries_of(const Piece& piece) {
    return min(piece.rows.runs.count, piece.end * kGroup);
  }
  static __device__ __forceinline__ std::int32_t units_of(const Params& p, const Piece& piece) {
    return (piece.groups(p) + Config::kPassUnits - 1) / Config::kPassUnits * Config::kPassUnits;
  }

  /// Tells the math warps of a piece.
  __device__ __forceinline__ void post(const Params& p, const Shared<Config>& shared, const Piece& piece,
                                       bool any) {
    if (pieces_ > 0) ptx::mbarrier_wait(shared.posted_empty(), (pieces_ - 1) & 1);
    if (threadIdx.x == kMathThreads) {
      PostedPiece& to = shared.posted(pieces_);
      to.piece = piece;
      to.units = units_of(p, piece);
      to.entries = entries_of(piece);
      to.shift = piece.rows.runs.second_begin - piece.rows.runs.first_end;
      to.any = any;
      ptx::mbarrier_arrive(shared.posted_full());
    }
    __syncwarp();
    ++pieces_;
  }

  /// The ring's next slot, once it is free.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t free_slot(const Params& p,
                                                                   const Shared<Config>& shared) const {
    const std::uint32_t slot = loaded_ % Config::kSlots;
    if (loaded_ >= Config::kSlots) {
      const std::uint32_t parity = (loaded_ / Config::kSlots - 1) & 1;
      if (Config::kWide && p.by_pairs) {
        ptx::mbarrier_wait_cluster(shared.empty(slot), parity);
      } else {
        ptx::mbarrier_wait(shared.empty(slot), parity);
      }
    }
    return slot;
  }

  /// Where this piece's queries may go.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t free_place(const Params& p,
                                                                    const Shared<Config>& shared) const {
    if constexpr (!Config::kWide) return free_slot(p, shared);
    // Who has taken the last piece is done with the one before it.
    if (pieces_ >= 2) ptx::mbarrier_wait(shared.posted_empty(), (pieces_ - 1) & 1);
    return pieces_ & 1;
  }

  /// Where the block table tells of an entry. Null beyond the table; only its width bounds entries, so that
  /// this need not wait for a length: what is told of entries beyond the list is not used. Sets offset_.
  [[nodiscard]] __device__ __forceinline__ const std::int32_t* at_entry(const Params& p, const Piece& piece,
                                                                        std::int32_t entry) {
    const kernels::CacheParams& cache = p.attention.cache;
    const std::int32_t position = piece.rows.runs.position(entry);
    const std::int32_t column = cache.by_block_size.quotient(position);
    offset_ = position - column * cache.block_size;
    return column < p.table_columns ? cache.block_table + piece.request * cache.table_stride_request +
                                          column * cache.table_stride_column
                                    : nullptr;
  }
  /// What this lane looks up of batch `batch` of units.
  [[nodiscard]] __device__ __forceinline__ const std::int32_t* next_entry(const Params& p, const Piece& piece,
                                                                          std::int32_t batch) {
    const auto lane = static_cast<std::int32_t>(lane_);
    if (p.by_units) return at_entry(p, piece, piece.entry(batch * 32 + lane));
    return at_entry(p, piece,
                    piece.entry(batch * 4 + lane / 8) + static_cast<std::int32_t>(warp_) * kOctet + lane % 8);
  }
  __device__ __forceinline__ void look_up(const Params& p, const Piece& piece, std::int32_t batch) {
    if (p.by_units && warp_ != 0) return;
    const std::int32_t* const at = next_entry(p, piece, batch);
    block_ = at != nullptr ? *at : 0;
  }

  /// The piece's cache rows. It is posted behind the first unit, which is more urgent.
  __device__ __forceinline__ void load(const Params& p, const Shared<Config>& shared, const Piece& piece) {
    const std::int32_t units = units_of(p, piece);
    const std::int32_t entries = entries_of(piece);
    for (std::int32_t unit = 0; unit < units; ++unit, ++loaded_) {
      if (!p.by_units) {
        load_octet(p, shared, piece, unit, entries);
      } else if (warp_ == 0) {
        load_unit(p, shared, piece, unit, entries);
      } else {
        ptx::mbarrier_arrive(shared.full(free_slot(p, shared)));
      }
      if (unit == 0) post(p, shared, piece, true);
    }
  }

  /// By all load warps.
  __device__ __forceinline__ void load_octet(const Params& p, const Shared<Config>& shared,
                                             const Piece& piece, std::int32_t unit, std::int32_t entries) {
    const int from_lane = (unit & 3) * 8 + static_cast<int>(lane_ / 8);
    const std::int32_t block[2] = {__shfl_sync(0xffffffffU, block_, from_lane),
                                   __shfl_sync(0xffffffffU, block_, from_lane + 4)};
    const std::int32_t offset[2] = {__shfl_sync(0xffffffffU, offset_, from_lane),
                                    __shfl_sync(0xffffffffU, offset_, from_lane + 4)};
    if ((unit & 3) == 3) look_up(p, piece, unit / 4 + 1);
    const std::int32_t entry = piece.entry(unit) + static_cast<std::int32_t>(warp_ * kOctet + lane_ / 8);
    const std::uint32_t slot = free_slot(p, shared);
    const std::uint32_t to = to_ + slot * Config::kSlotBytes + warp_ * Config::kOctetPitch;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_row(p, to, half, block[half], offset[half], entry + half * 4 < entries);
    }
    ptx::mbarrier_arrive_cp_async(shared.full(slot));
  }

  /// By the first load warp, for all; of a pair of CTAs, one for both.
  __device__ __forceinline__ void load_unit(const Params& p, const Shared<Config>& shared, const Piece& piece,
                                            std::int32_t unit, std::int32_t entries) {
    const std::int32_t block = __shfl_sync(0xffffffffU, block_, unit & 31);
    const std::int32_t offset = __shfl_sync(0xffffffffU, offset_, unit & 31);
    if ((unit & 31) == 31) look_up(p, piece, unit / 32 + 1);
    const std::int32_t first = piece.entry(unit);
    const std::uint32_t slot = free_slot(p, shared);
    const std::uint32_t full = shared.full(slot);
    if (first + kUnit > entries) {
      load_rows(p, to_ + slot * Config::kSlotBytes, block, offset, entries - first);
      ptx::mbarrier_arrive_cp_async(full);
    } else if (lane_ != 0) {
      ptx::mbarrier_arrive(full);
    } else {
      ptx::mbarrier_arrive_expect(full, Config::kSlotBytes);
      const std::uint32_t to = shared.at(Config::kRingAt) + slot * Config::kSlotBytes;
      // Who else reads these rows does so from the L2.
      const std::uint64_t policy = p.row_groups == 1 ? ptx::evict_first_policy() : ptx::evict_normal_policy();
      if (!Config::kWide || !p.by_pairs) {
        ptx::tma_load(to, &units_, full, 0, 0, 0, offset / kOctet, block, policy);
      } else if (loaded_ % 2 == blockIdx.y % 2) {
        ptx::tma_load_multicast(to, &units_, full, 0, 0, 0, offset / kOctet, block, kPair, policy);
      }
    }
  }

  /// The last unit, row by row, as far as there are any.
  __device__ __forceinline__ void load_rows(const Params& p, std::uint32_t to, std::int32_t block,
                                            std::int32_t offset, std::int32_t rows) const {
#pragma unroll 1
    for (auto row = static_cast<std::int32_t>(lane_ / 8); row < kUnit; row += 4) {
      load_row(p, to + row / kOctet * Config::kOctetPitch, row / 4 % 2, block, offset + row, row < rows);
    }
  }

  /// Row lane / 8, or with `half` the fourth behind it, of an octet that begins at `to` (but for to_'s part). A
  /// row of zeros if it is not there: its weight will be 0, and 0 times what memory held may be NaN.
  __device__ __forceinline__ void load_row(const Params& p, std::uint32_t to, int half, std::int32_t block,
                                           std::int32_t offset, bool there) const {
    if (!there) block = offset = 0;
    if (half != 0) to = (to ^ 4 << 4) + 4 * 128;
    const kernels::CacheParams& cache = p.attention.cache;
    const std::uint32_t column = lane_ % 8 * kLane;
    const std::byte* const latent = cache.latent +
                                    std::uint64_t{static_cast<std::uint32_t>(block)} * p.latent_block +
                                    (static_cast<std::uint32_t>(offset) * p.latent_row + column);
    const int bytes = there ? kLane : 0;
#pragma unroll
    for (int box = 0; box < Config::kLatentBoxes; ++box) {
      ptx::cp_async_16(to + box * Config::kBoxPitch, latent + box * 128, bytes);
    }
    const int rope_bytes = there ? rope_bytes_ : 0;
    const std::byte* const rope = cache.rope +
                                  std::uint64_t{static_cast<std::uint32_t>(block)} * p.rope_block +
                                  (static_cast<std::uint32_t>(offset) * p.rope_row + column);
    ptx::cp_async_16(to + Config::kLatentBoxes * Config::kBoxPitch, rope_bytes > 0 ? rope : cache.latent,
                     rope_bytes);
  }

  const CUtensorMap& units_;
  Walk walk_;
  Piece piece_;
  bool foreseen_ = false;
  std::uint32_t warp_, lane_;
  std::uint32_t to_;  // this lane's place in the first octet of the ring
  int rope_bytes_;
  std::int32_t block_ = 0, offset_ = 0;  // what this lane has looked up
  std::uint32_t loaded_ = 0;             // slots of the ring
  std::uint32_t pieces_ = 0;             // posted
};

}  // namespace mla::MLA_ARCH_NS::latent
