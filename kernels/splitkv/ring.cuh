// SPDX-License-Identifier: Apache-2.0
// The ring of tiles: rows of the paged cache on their way to shared memory, several tiles ahead of the
// mathematics and across the borders of units.
#pragma once

#include <cuda_bf16.h>

#include <utility>

#include "common/paging.cuh"
#include "ptx/address.cuh"
#include "ptx/cp_async.cuh"
#include "splitkv/traits.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

/// A thread's side of the ring. Eight neighbouring threads copy a row together, a line of 128 bytes at a
/// time; where the last rows of a tile leave threads over, more of them share a row. Which row, and where it
/// lies, is looked up one tile before it is needed.
template <class Config>
class Ring {
 public:
  static constexpr int kRowsAtOnce = kThreads / kLine;
  static constexpr int kRounds = (Config::kKeys + kRowsAtOnce - 1) / kRowsAtOnce;

  __device__ __forceinline__ Ring(const Params& p, const Part& part)
      : left_(part.end - part.begin),
        unit_(part.unit),
        first_entry_((part.begin - part.unit_begin) * Config::kKeys) {
    enter_unit(p);
    look_up(p);
  }

  /// Enqueues the next tile into `stage`, if one is left, as one group of copies (an empty one at the end).
  __device__ __forceinline__ void issue(const Params& p, const Shared<Config>& shared, int stage) {
    if (left_ > 0) {
      issue_rounds(p, shared, stage, std::make_integer_sequence<int, kRounds>());
      --left_;
      first_entry_ += Config::kKeys;
      if (left_ > 0 && first_entry_ >= count_) {
        ++unit_;
        first_entry_ = 0;
        enter_unit(p);
      }
      look_up(p);
    }
    ptx::cp_async_commit();
  }

 private:
  /// Threads times kLine that share a row in a round.
  static __device__ __forceinline__ constexpr int share(int round) {
    const int rows = Config::kKeys - round * kRowsAtOnce;
    return rows >= kRowsAtOnce ? 1 : kRowsAtOnce / rows;
  }
  static __device__ __forceinline__ int row_of(int round) {
    return round * kRowsAtOnce + static_cast<int>(threadIdx.x) / (kLine * share(round));
  }

  __device__ __forceinline__ void enter_unit(const Params& p) {
    if (left_ <= 0) return;
    const Unit unit = load_unit(p, unit_);
    request_ = unit.request;
    first_end_ = unit.runs.first_end;
    shift_ = unit.runs.second_begin - unit.runs.first_end;
    // With an index the entries of a token without keys are walked, too; none of them is valid.
    count_ = p.attention.topk > 0 ? p.attention.topk : unit.runs.count;
  }

  __device__ __forceinline__ std::int32_t indexed_position(const Params& p, std::int32_t entry) const {
    const kernels::AttentionParams& a = p.attention;
    if (request_ >= a.num_requests) return -1;  // a token of no request
    const std::int32_t position = a.token_index[unit_ * a.index_stride_token + entry * a.index_stride_entry];
    return position < a.seq_lens[request_ * a.seq_lens_stride] ? position : -1;
  }

  /// Starts the loads of the block table for the next tile.
  __device__ __forceinline__ void look_up(const Params& p) {
    if (left_ <= 0) return;
    const kernels::AttentionParams& a = p.attention;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const std::int32_t entry = first_entry_ + row_of(i);
      position_[i] = -1;
      if (entry >= count_) continue;
      position_[i] = a.topk > 0 ? indexed_position(p, entry) : entry < first_end_ ? entry : entry + shift_;
      if (position_[i] >= 0) block_[i] = place_of(a.cache, request_, position_[i]).block;
    }
  }

  template <int... kRound>
  __device__ __forceinline__ void issue_rounds(const Params& p, const Shared<Config>& shared, int stage,
                                               std::integer_sequence<int, kRound...>) const {
    (issue_round<kRound>(p, shared, stage), ...);
  }

  template <int kRound>
  __device__ __forceinline__ void issue_round(const Params& p, const Shared<Config>& shared,
                                              int stage) const {
    constexpr int kShare = share(kRound);
    const kernels::CacheParams& cache = p.attention.cache;
    const int row = row_of(kRound);
    const int lane = static_cast<int>(threadIdx.x) % kLine;
    const int helper = static_cast<int>(threadIdx.x) / kLine % kShare;
    const std::int32_t position = position_[kRound];
    if (lane == 0 && helper == 0) shared.positions(stage)[row] = position;
    if (position < 0) {
      // Zeros: the row's weight will be 0, and 0 times what memory held may be NaN.
      const Target to(shared, stage, row, lane, helper);
      copy_row<kShare>(
          p, to, lane, helper, [](std::uint32_t at, int) { ptx::store_zeros_16(at); },
          [](std::uint32_t at, int) { ptx::store_zeros_16(at); });
      return;
    }
    const auto block = static_cast<std::uint32_t>(block_[kRound]);
    const auto offset =
        static_cast<std::uint32_t>(position - cache.by_block_size.quotient(position) * cache.block_size);
    const auto column = static_cast<std::uint32_t>(lane * kChunk);
    const std::byte* const latent =
        cache.latent + std::uint64_t{block} * p.latent_block +
        (offset * p.latent_row + column + static_cast<std::uint32_t>(helper) * 128);
    const std::byte* const rope =
        cache.rope + std::uint64_t{block} * p.rope_block + (offset * p.rope_row + column);
    const Target to(shared, stage, row, lane, helper);
    copy_row<kShare>(
        p, to, lane, helper, [&](std::uint32_t at, int from) { ptx::cp_async_16(at, latent + from); },
        [&](std::uint32_t at, int from) { ptx::cp_async_16(at, rope + from); });
  }

  /// Where in shared memory this thread's chunk of a row's first line goes.
  struct Target {
    std::uint32_t latent, rope;
    __device__ __forceinline__ Target(const Shared<Config>& shared, int stage, int row, int lane,
                                      int helper) {
      if constexpr (Config::kFp8) {
        const std::uint32_t at = ptx::smem(shared.ring(stage) + row * Config::kRawRowBytes) + lane * kChunk;
        latent = at + helper * 128;
        rope = at + Config::kLatent + 16;
      } else {
        const std::uint32_t at = ptx::smem(shared.ring(stage) + row * Config::kRowBytes) + swizzle(row, lane);
        latent = at + helper * 128;
        rope = at + Config::kLines * 128;
      }
    }
  };

  /// Calls latent(target, offset in the row's part) and rope(..) for this thread's chunks of a row.
  template <int kShare, class Latent, class Rope>
  static __device__ __forceinline__ void copy_row(const Params& p, const Target& to, int lane, int helper,
                                                  Latent latent, Rope rope) {
    constexpr int kRowLines = Config::kFp8 ? Config::kLatent / 128 : Config::kLines;
#pragma unroll
    for (int line = 0; line < kRowLines; line += kShare) {
      if (kRowLines % kShare == 0 || line + helper < kRowLines) latent(to.latent + line * 128, line * 128);
    }
    if (helper != kShare - 1) return;
    if constexpr (Config::kFp8) {
      const bool scaled = p.attention.cache.format == CacheFormat::kFp8DsMla;
      if (lane < p.attention.rope * (scaled ? 2 : 1) / kChunk) rope(to.rope, 0);
      // `latent` starts at the thread's own first chunk.
      if (scaled && lane == 0) {
        latent(to.rope - 16, p.attention.cache.scale_offset - helper * 128);
      }
    } else {
      if (lane * (kChunk / 2) < p.attention.rope) rope(to.rope, 0);
    }
  }

  std::int32_t left_;                                     // tiles still to be issued
  std::int32_t unit_;                                     // of the next one
  std::int32_t first_entry_;                              // of the unit's list of keys, in the next tile
  std::int32_t request_, count_ = 0, first_end_, shift_;  // of the unit
  std::int32_t position_[kRounds];                        // this thread's rows of the next tile; -1: none
  std::int32_t block_[kRounds];
};

/// Waits until at most `pending` of this thread's groups are unfinished (the instruction wants a constant).
__device__ __forceinline__ void wait_for_groups(int pending) {
  switch (pending) {
    case 0:
      return ptx::cp_async_wait<0>();
    case 1:
      return ptx::cp_async_wait<1>();
    case 2:
      return ptx::cp_async_wait<2>();
    case 3:
      return ptx::cp_async_wait<3>();
    case 4:
      return ptx::cp_async_wait<4>();
    case 5:
      return ptx::cp_async_wait<5>();
    default:
      return ptx::cp_async_wait<6>();
  }
}
inline constexpr int kMaxStages = 8;

}  // namespace mla::MLA_ARCH_NS::splitkv
