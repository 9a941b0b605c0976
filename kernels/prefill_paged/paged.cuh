// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/paging.cuh"
#include "expand/flash.cuh"
#include "prefill_paged/table.hpp"

/// Prefill straight from the latent pages (docs/kernels/prefill_paged.md): K and V of one head exist for one
/// tile of keys, in shared memory, and nowhere else.
///
///   q [tokens, H, P+R], rows [c_kv L | k_pe R] by block table, W_UK [H, P, L], W_UV [H, V, L]  ->  out [tokens, H, V]
///
///   block: 128 queries of one head, 8 warps. For each tile of keys:
///
///     expand   [K | V] [keys, P + V] = rows [keys, L] [W_UK | W_UV]^T     slices of L in a two-stage cp.async ring; each
///              warp makes all keys of its own columns, in registers, rounds them and stores them to shared memory
///     attend   S = Q K^T, softmax, O += P V                               each warp 16 queries, as in the flash kernel
///
/// Work: 2 keys L (P + V) + 2 queries keys (P + R + V) for each block and tile, so at 128 queries and L 512
/// expanding costs four times the attention: this strategy trades arithmetic for memory (no workspace at
/// all). Bound by the tensor cores.
namespace mla::MLA_ARCH_NS::prefill_paged {

using flash::kPad;
using flash::RowState;
using flash::Scores;
using kernels::expand::Segment;
using kernels::prefill_paged::Params;

/// kNope: widest P; kSlice: channels of the latent a stage holds; kPasses: 2 makes K first and then V, with
/// half the accumulators.
template <class T_, int kDqk_, int kDv_, int kNope_, int kBlockN_, int kSlice_, int kPasses_>
struct Traits : flash::Traits<T_, kDqk_, kDv_, 8, 1, kBlockN_> {
  using Base = flash::Traits<T_, kDqk_, kDv_, 8, 1, kBlockN_>;
  using T = T_;
  static constexpr int kNope = kNope_, kSlice = kSlice_, kPasses = kPasses_;
  static constexpr int kColumns = kPasses_ == 1 ? kNope_ + kDv_ : kNope_;  // of [K | V] at a time
  static constexpr int kColumnsPerWarp = kColumns / Base::kWarps;
  static_assert(kPasses_ == 1 || kNope_ == kDv_, "passes of equal size");
  static_assert(kColumnsPerWarp % 16 == 0 && kNope_ % kColumnsPerWarp == 0,
                "a warp makes columns of K or of V");
  struct Shared {
    T q[Base::kBlockM][kDqk_ + kPad];
    T k[kBlockN_][kDqk_ + kPad];
    T v[kBlockN_][kDv_ + kPad];
    T rows[2][kBlockN_][kSlice_ + kPad];
    T weights[2][kColumns][kSlice_ + kPad];
    const T* latent[kBlockN_];  // rows of the tile; null: no such key
    const T* rope[kBlockN_];
    flash::Work work;
  };
};

/// Addresses of the tile's rows. A key past the end has none and becomes zeros.
template <class Tr>
__device__ __forceinline__ void find_rows(const Params& p, const Segment& segment, int request, int tile,
                                          int end, typename Tr::Shared& shared) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= Tr::kBlockN) return;
  const int position = segment.keys.position(tile + i);
  const bool live = tile + i < end && position / p.cache.block_size < p.table_columns;
  const RowPlace place = live ? place_of(p.cache, request, position) : RowPlace{-1, 0};
  const bool there = place.block >= 0 && place.block < p.cache.num_blocks;
  using T = typename Tr::T;
  shared.latent[i] = there ? reinterpret_cast<const T*>(latent_row(p.cache, place)) : nullptr;
  shared.rope[i] = there ? reinterpret_cast<const T*>(rope_row(p.cache, place)) : nullptr;
}

/// Channels [first, first + kSlice) of the tile's rows and of this head's weights from column `from` of [K | V] on, as one
/// cp.async group.
template <class Tr>
__device__ __forceinline__ void load_slice(const Params& p, int head, int from, int first, int stage,
                                           typename Tr::Shared& shared) {
  using T = typename Tr::T;
  constexpr int kVectors = Tr::kSlice / 8;
  const T* const w_uk = static_cast<const T*>(p.w_uk) + head * p.w_uk_head;
  const T* const w_uv = static_cast<const T*>(p.w_uv) + head * p.w_uv_head;
  for (int i = static_cast<int>(threadIdx.x); i < Tr::kBlockN * kVectors; i += Tr::kThreads) {
    const int r = i / kVectors, column = first + i % kVectors * 8;
    const T* const row = shared.latent[r];
    const bool live = row != nullptr && column < p.latent;
    ptx::cp_async_16(ptx::smem(&shared.rows[stage][r][column - first]), live ? row + column : w_uk,
                     live ? 16 : 0);
  }
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < Tr::kColumns * kVectors; i += Tr::kThreads) {
    const int r = from + i / kVectors, column = first + i % kVectors * 8;
    const bool key = r < Tr::kNope;
    const bool live = column < p.latent && (key ? r < p.attend.nope : r - Tr::kNope < p.attend.v_dim);
    const T* const row = key ? w_uk + r * p.w_uk_row : w_uv + (r - Tr::kNope) * p.w_uv_row;
    ptx::cp_async_16(ptx::smem(&shared.weights[stage][r - from][column - first]), live ? row + column : w_uk,
                     live ? 16 : 0);
  }
  ptx::cp_async_commit();
}

/// The rotary part of K and the zeros behind it: no head has its own. Joins the group that is committed next.
template <class Tr>
__device__ __forceinline__ void load_rope(const Params& p, typename Tr::Shared& shared) {
  using T = typename Tr::T;
  const int vectors = (Tr::kDqk - p.attend.nope) / 8;
  for (int i = static_cast<int>(threadIdx.x); i < Tr::kBlockN * vectors; i += Tr::kThreads) {
    const int r = i / vectors, column = i % vectors * 8;
    const T* const row = shared.rope[r];
    const bool live = row != nullptr && column < p.attend.rope;
    ptx::cp_async_16(ptx::smem(&shared.k[r][p.attend.nope + column]),
                     live ? row + column : static_cast<const T*>(p.w_uk), live ? 16 : 0);
  }
}

/// [K | V] of the tile from column `from` on: this warp's columns of all keys.
template <class Tr>
__device__ __forceinline__ void expand_columns(const Params& p, int head, int from,
                                               typename Tr::Shared& shared, int warp, int lane) {
  using T = typename Tr::T;
  constexpr int kRow = Tr::kSlice + kPad, kMt = Tr::kBlockN / 16, kNt = Tr::kColumnsPerWarp / 8;
  float acc[kMt][kNt][4] = {};
  const int slices = (p.latent + Tr::kSlice - 1) / Tr::kSlice;
  load_slice<Tr>(p, head, from, 0, 0, shared);
  for (int slice = 0; slice < slices; ++slice) {
    const int stage = slice & 1;
    ptx::cp_async_wait<0>();
    __syncthreads();  // the slice has landed for all; nobody still reads the other stage
    if (slice + 1 < slices) load_slice<Tr>(p, head, from, (slice + 1) * Tr::kSlice, stage ^ 1, shared);
    const uint32_t a_at = ptx::smem(&shared.rows[stage][lane & 15][(lane >> 4) * 8]);
    const uint32_t b_at = ptx::smem(&shared.weights[stage][warp * Tr::kColumnsPerWarp + (lane & 7) +
                                                           (lane >> 4) * 8][((lane >> 3) & 1) * 8]);
#pragma unroll
    for (int c = 0; c < Tr::kSlice; c += 16) {
      uint32_t a[kMt][4];
#pragma unroll
      for (int mt = 0; mt < kMt; ++mt) ptx::ldmatrix_x4(a[mt], a_at + (mt * 16 * kRow + c) * 2);
#pragma unroll
      for (int nt = 0; nt < kNt; nt += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, b_at + (nt * 8 * kRow + c) * 2);
#pragma unroll
        for (int mt = 0; mt < kMt; ++mt) {
          ptx::mma<T>(acc[mt][nt], a[mt], b[0], b[1]);
          ptx::mma<T>(acc[mt][nt + 1], a[mt], b[2], b[3]);
        }
      }
    }
  }
  // Columns of K beyond P would fall on the rotary part; a warp has columns of K or of V, never of both.
  const int first = from + warp * Tr::kColumnsPerWarp;
  const bool keys = first < Tr::kNope;
#pragma unroll
  for (int mt = 0; mt < kMt; ++mt) {
#pragma unroll
    for (int nt = 0; nt < kNt; ++nt) {
      const int column = first + nt * 8 + (lane & 3) * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = mt * 16 + half * 8 + (lane >> 2);
        const uint32_t two = flash::pack<T>(acc[mt][nt][2 * half], acc[mt][nt][2 * half + 1]);
        if (!keys) {
          *reinterpret_cast<uint32_t*>(&shared.v[key][column - Tr::kNope]) = two;
        } else if (column < p.attend.nope) {
          *reinterpret_cast<uint32_t*>(&shared.k[key][column]) = two;
        }
      }
    }
  }
}

template <class Tr>
__global__ void __launch_bounds__(Tr::kThreads, 1) paged_kernel(const __grid_constant__ Params p) {
  using T = typename Tr::T;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<typename Tr::Shared*>(shared_bytes);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const auto& a = p.attend;
  long long block = blockIdx.x;
  const int tile_number = a.tiles - 1 - static_cast<int>(block % a.tiles);  // long ones first
  block /= a.tiles;
  const int head = static_cast<int>(block % a.heads), request = static_cast<int>(block / a.heads);
  const Segment segment = kernels::expand::segment_at(a.segments, request);
  const int first_query = tile_number * Tr::kBlockM;
  if (first_query >= segment.q_len) return;

  const int warp_query = first_query + warp * 16;
  const flash::Span span = flash::span_of<Tr::kBlockM>(a, segment, first_query, 0);
  const flash::Reach reach = flash::reach_of(a, segment, span, segment.kv_len - segment.q_len + warp_query,
                                             min(16, segment.q_len - warp_query));
  if (threadIdx.x == 0)
    shared.work =
        flash::work_of<Tr::kBlockM>(a, segment, span, head, 0, first_query);  // read behind a barrier
  RowState<1, Tr::kDv> state;
  state.clear();
  flash::copy_queries<T, Tr::kBlockM, Tr::kDqk, Tr::kThreads>(shared.q, a, segment, head, first_query);
  int tile = flash::next_tile<Tr::kBlockN>(span, span.begin);
  for (const int end = span.end; tile < end;) {
    __syncthreads();  // the last tile's K, V and addresses are done with
    find_rows<Tr>(p, shared.work.segment, request, tile, shared.work.span.end, shared);
    __syncthreads();
    load_rope<Tr>(p, shared);
#pragma unroll 1
    for (int pass = 0; pass < Tr::kPasses; ++pass) {
      if (pass > 0) __syncthreads();  // the last slice's operands are done with
      expand_columns<Tr>(p, head, pass * Tr::kColumns, shared, warp, lane);
    }
    __syncthreads();  // K and V are complete
    if (flash::has_unshared<Tr::kBlockN>(shared.work, tile)) {
      flash::clear_unshared<T, Tr::kBlockN, Tr::kDv, Tr::kThreads>(shared.v, shared.work, tile);
      __syncthreads();
    }
    if (tile < reach.none) {
      Scores<1, Tr::kBlockN> s;
      flash::score_tile<T, Tr::kDqk, 1, Tr::kBlockN>(s, &shared.q[warp * 16][0], &shared.k[0][0], lane);
      if (tile < reach.all_begin || tile + Tr::kBlockN > reach.all_end)
        flash::mask_scores<1, Tr::kBlockN>(s, a, shared.work, tile, reach.position);
      flash::raise_pivots<1, Tr::kBlockN, Tr::kDv>(s, state, a.score_scale);
      flash::weigh<1, Tr::kBlockN, Tr::kDv>(s, state, a.score_scale);
      flash::value_tile<T, Tr::kDv, 1, Tr::kBlockN>(s, state, &shared.v[0][0], lane);
    }
    tile = flash::next_tile<Tr::kBlockN>(shared.work.span, tile + Tr::kBlockN);
  }
  __syncthreads();  // in a block without tiles, nobody has waited for the work yet
  flash::store_rows<typename Tr::Base>(a, shared.work.segment, state, warp_query, head, 0);
}

}  // namespace mla::MLA_ARCH_NS::prefill_paged
