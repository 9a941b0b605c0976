// SPDX-License-Identifier: Apache-2.0
// The ring of tiles: rows of the paged cache on their way to shared memory, several tiles ahead of the mathematics and
// across the borders of units.
#pragma once

#include <cuda_bf16.h>

#include "common/paging.cuh"
#include "ptx/address.cuh"
#include "ptx/cp_async.cuh"
#include "splitkv/traits.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

/// A thread's side of the ring. Eight neighbouring threads copy a row together, a line of 128 bytes at a time; which
/// row, and where it lies, is looked up one tile before it is needed.
template <class Config>
class Ring {
 public:
  static constexpr int kRowsAtOnce = kThreads / kLine;
  static constexpr int kRounds = (Config::kKeys + kRowsAtOnce - 1) / kRowsAtOnce;

  __device__ __forceinline__ Ring(const Params& p, const Part& part)
      : left_(part.end - part.begin), index_(part.unit), tile_(part.begin - part.unit_begin) {
    if (left_ > 0) unit_ = load_unit(p, index_);
    look_up(p);
  }

  /// Enqueues the next tile into `stage`, if one is left, as one group of copies (an empty one at the end).
  __device__ __forceinline__ void issue(const Params& p, const Shared<Config>& shared, int stage) {
    if (left_ > 0) {
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const int row = row_of(i);
        if (Config::kKeys % kRowsAtOnce != 0 && row >= Config::kKeys) break;
        copy(p, shared, stage, row, place_[i], position_[i] >= 0);
        if (threadIdx.x % kLine == 0) shared.positions(stage)[row] = position_[i];
      }
      --left_;
      ++tile_;
      if (left_ > 0 && tile_ == unit_.tiles) {
        unit_ = load_unit(p, ++index_);
        tile_ = 0;
      }
      look_up(p);
    }
    ptx::cp_async_commit();
  }

 private:
  static __device__ __forceinline__ int row_of(int i) {
    return i * kRowsAtOnce + static_cast<int>(threadIdx.x) / kLine;
  }

  /// Starts the loads of the block table for the next tile.
  __device__ __forceinline__ void look_up(const Params& p) {
    if (left_ <= 0) return;
    const kernels::AttentionParams& a = p.attention;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const std::int32_t entry = tile_ * Config::kKeys + row_of(i);
      position_[i] = -1;
      place_[i] = RowPlace{};
      if (entry >= unit_.runs.count) continue;
      const std::int32_t position =
          a.topk > 0 ? a.token_index[unit_.first_token * a.index_stride_token + entry * a.index_stride_entry]
                     : unit_.runs.position(entry);
      if (position < 0 || position >= unit_.keys) continue;
      position_[i] = position;
      place_[i] = place_of(a.cache, unit_.request, position);
    }
  }

  /// A row that does not exist is filled with zeros: its weight will be 0, and 0 times what memory held may be NaN.
  static __device__ __forceinline__ void copy(const Params& p, const Shared<Config>& shared, int stage,
                                              int row, RowPlace place, bool exists) {
    const kernels::CacheParams& cache = p.attention.cache;
    const int lane = static_cast<int>(threadIdx.x) % kLine;
    const int bytes = exists ? kChunk : 0;
    const std::byte* latent = latent_row(cache, place);
    const std::byte* rope = rope_row(cache, place) + lane * kChunk;
    if constexpr (Config::kFp8) {
      const std::uint32_t to = ptx::smem(shared.ring(stage) + row * Config::kRawRowBytes);
#pragma unroll
      for (int line = 0; line < Config::kLatent / 128; ++line) {
        const int at = (line * kLine + lane) * kChunk;
        ptx::cp_async_16(to + at, latent + at, bytes);
      }
      const bool scaled = cache.format == CacheFormat::kFp8DsMla;
      const int rope_chunks = p.attention.rope * (scaled ? 2 : 1) / kChunk;
      if (lane < rope_chunks) ptx::cp_async_16(to + Config::kLatent + 16 + lane * kChunk, rope, bytes);
      if (scaled && lane == 0) ptx::cp_async_16(to + Config::kLatent, latent + cache.scale_offset, bytes);
    } else {
      const std::uint32_t to = ptx::smem(shared.ring(stage) + row * Config::kRowBytes) + swizzle(row, lane);
#pragma unroll
      for (int line = 0; line < Config::kLines; ++line) {
        ptx::cp_async_16(to + line * 128, latent + line * 128 + lane * kChunk, bytes);
      }
      if (lane * (kChunk / 2) < p.attention.rope) ptx::cp_async_16(to + Config::kLines * 128, rope, bytes);
    }
  }

  std::int32_t left_;   // tiles still to be issued
  std::int32_t index_;  // unit of the next one
  std::int32_t tile_;   // its number in the unit
  Unit unit_;
  RowPlace place_[kRounds];
  std::int32_t position_[kRounds];
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
