// SPDX-License-Identifier: Apache-2.0
// Load warps of the small-work kernel: they walk over the CTA's pieces, post each, and keep the ring filled
// across the borders of pieces: a slot of queries, then the piece's cache rows. Where rows come from is
// decided here alone.
#pragma once

#include "common/paging.cuh"
#include "latent/small_traits.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// Starts the copies of a row group's queries to a slot of the ring and counts them there, by kLoadThreads
/// threads: eight a row and box. Rows and rotary channels that do not exist are zeros.
template <class Config>
__device__ __forceinline__ void load_queries(const Params& p, const Shared<Config>& shared,
                                             const Lengths& rows, std::uint32_t slot, std::uint32_t thread) {
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
    const std::uint32_t to = shared.at(Config::kRingAt) + slot * Config::kSlotBytes + in_box(r, chunk);
#pragma unroll
    for (int box = 0; box < Config::kBoxes; ++box) {
      const int bytes = !there ? 0 : box < Config::kLatentBoxes ? kLane : rope_bytes;
      ptx::cp_async_16(to + box * Config::kQueryBox, bytes > 0 ? from + box * 64 : from, bytes);
    }
  }
  ptx::mbarrier_arrive_cp_async(shared.full(slot));
}

/// One thread's side. Each load warp fetches one group of eight entries a unit: eight lanes a row, a line of
/// 128 bytes at a time, rows r and r + 4 in turn. Blocks of the next four units are looked up ahead: lane 8 u
/// + r holds row r of unit u.
template <class Config>
class Loader {
 public:
  __device__ __forceinline__ Loader(const Params& p, const Shared<Config>& shared)
      : walk_(Config::kRows), warp_(threadIdx.x / 32 - kMathWarps), lane_(threadIdx.x % 32) {
    const std::uint32_t row = warp_ * kGroup + lane_ / 8;
    to_[0] = shared.at(Config::kRingAt) + in_box(row, lane_ % 8);
    to_[1] = shared.at(Config::kRingAt) + in_box(row + 4, lane_ % 8);
    rope_bytes_ = lane_ % 8 * 8 < p.attention.rope ? kLane : 0;
  }

  /// While the launch before this one still runs: asks for the lines of what is read first. The table and the
  /// lengths may yet be written; a line in the L2 is written there.
  __device__ __forceinline__ void prepare(const Params& p) {
    foreseen_ = walk_.foresee(p, piece_);
    if (!foreseen_) return;
    const kernels::AttentionParams& a = p.attention;
    if (const std::int32_t* at = entry_of(p, piece_, 0); at != nullptr) ptx::prefetch_l2(at);
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
        const std::uint32_t slot = free_slot(shared);
        load_queries(p, shared, piece_.rows, slot, threadIdx.x - kMathThreads);
      }
      ++loaded_;
      load(p, shared, piece_);
      if (piece_.last) return;
      walk_.next(p, piece_);
      look_up(p, piece_, 0);
    }
  }

 private:
  /// Entries at and behind this one are not the CTA's.
  static __device__ __forceinline__ std::int32_t entries_of(const Piece& piece) {
    return min(piece.rows.runs.count, piece.end * kGroup);
  }

  /// Tells the math warps of a piece.
  __device__ __forceinline__ void post(const Params& p, const Shared<Config>& shared, const Piece& piece,
                                       bool any) {
    if (pieces_ > 0) ptx::mbarrier_wait(shared.posted_empty(), (pieces_ - 1) & 1);
    if (threadIdx.x == kMathThreads) {
      PostedPiece& to = shared.posted(pieces_);
      to.piece = piece;
      to.units = (piece.groups(p) + kLoadWarps - 1) / kLoadWarps;
      to.entries = entries_of(piece);
      to.shift = piece.rows.runs.second_begin - piece.rows.runs.first_end;
      to.any = any;
      ptx::mbarrier_arrive(shared.posted_full());
    }
    __syncwarp();
    ++pieces_;
  }

  /// The ring's next slot, once it is free.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t free_slot(const Shared<Config>& shared) const {
    const std::uint32_t slot = loaded_ % Config::kSlots;
    if (loaded_ >= Config::kSlots) {
      ptx::mbarrier_wait(shared.empty(slot), (loaded_ / Config::kSlots - 1) & 1);
    }
    return slot;
  }

  /// Where the block table tells of this lane's row of units 4 batch .. 4 batch + 3, and offset_. Null beyond
  /// the table.
  [[nodiscard]] __device__ __forceinline__ const std::int32_t* entry_of(const Params& p, const Piece& piece,
                                                                        std::int32_t batch) {
    const kernels::CacheParams& cache = p.attention.cache;
    const auto group =
        static_cast<std::int32_t>((4 * static_cast<std::uint32_t>(batch) + lane_ / 8) * kLoadWarps + warp_);
    const std::int32_t entry = piece.entry(group) + static_cast<std::int32_t>(lane_ % 8);
    const std::int32_t position = piece.rows.runs.position(entry);
    const std::int32_t column = cache.by_block_size.quotient(position);
    offset_ = position - column * cache.block_size;
    return column < p.table_columns ? cache.block_table + piece.request * cache.table_stride_request +
                                          column * cache.table_stride_column
                                    : nullptr;
  }
  /// Starts the loads of the block table for these units. Entries beyond the list give a block that is not
  /// used; only the table's own width bounds them, so that this need not wait for a length.
  __device__ __forceinline__ void look_up(const Params& p, const Piece& piece, std::int32_t batch) {
    const std::int32_t* const at = entry_of(p, piece, batch);
    block_ = at != nullptr ? *at : 0;
  }

  /// The piece's cache rows. It is posted behind the first unit, which is more urgent.
  __device__ __forceinline__ void load(const Params& p, const Shared<Config>& shared, const Piece& piece) {
    const std::int32_t units = (piece.groups(p) + kLoadWarps - 1) / kLoadWarps;
    const std::int32_t entries = entries_of(piece);
    for (std::int32_t unit = 0; unit < units; ++unit, ++loaded_) {
      const int from_lane = (unit & 3) * 8 + static_cast<int>(lane_ / 8);
      const std::int32_t block[2] = {__shfl_sync(0xffffffffU, block_, from_lane),
                                     __shfl_sync(0xffffffffU, block_, from_lane + 4)};
      const std::int32_t offset[2] = {__shfl_sync(0xffffffffU, offset_, from_lane),
                                      __shfl_sync(0xffffffffU, offset_, from_lane + 4)};
      if ((unit & 3) == 3) look_up(p, piece, unit / 4 + 1);
      const std::int32_t entry = piece.entry(unit * kLoadWarps + static_cast<std::int32_t>(warp_)) +
                                 static_cast<std::int32_t>(lane_ / 8);
      const std::uint32_t slot = free_slot(shared);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool there = entry + half * 4 < entries;
        load_row(p, to_[half] + slot * Config::kSlotBytes, there ? block[half] : 0, there ? offset[half] : 0,
                 there);
      }
      ptx::mbarrier_arrive_cp_async(shared.full(slot));
      if (unit == 0) post(p, shared, piece, true);
    }
  }

  /// A row of zeros if it is not there: its weight will be 0, and 0 times what memory held may be NaN.
  __device__ __forceinline__ void load_row(const Params& p, std::uint32_t to, std::int32_t block,
                                           std::int32_t offset, bool there) const {
    const kernels::CacheParams& cache = p.attention.cache;
    const std::uint32_t column = lane_ % 8 * kLane;
    const std::byte* const latent = cache.latent +
                                    std::uint64_t{static_cast<std::uint32_t>(block)} * p.latent_block +
                                    (static_cast<std::uint32_t>(offset) * p.latent_row + column);
    const int bytes = there ? kLane : 0;
#pragma unroll
    for (int box = 0; box < Config::kLatentBoxes; ++box) {
      ptx::cp_async_16(to + box * Config::kUnitBox, latent + box * 128, bytes);
    }
    const int rope_bytes = there ? rope_bytes_ : 0;
    const std::byte* const rope = cache.rope +
                                  std::uint64_t{static_cast<std::uint32_t>(block)} * p.rope_block +
                                  (static_cast<std::uint32_t>(offset) * p.rope_row + column);
    ptx::cp_async_16(to + Config::kLatentBoxes * Config::kUnitBox, rope_bytes > 0 ? rope : cache.latent,
                     rope_bytes);
  }

  Walk walk_;
  Piece piece_;
  bool foreseen_ = false;
  std::uint32_t warp_, lane_;
  std::uint32_t to_[2];
  int rope_bytes_;
  std::int32_t block_ = 0, offset_ = 0;  // of this lane's row of the looked-up units
  std::uint32_t loaded_ = 0;             // slots of the ring
  std::uint32_t pieces_ = 0;             // posted
};

}  // namespace mla::MLA_ARCH_NS::latent
