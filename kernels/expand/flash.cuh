// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "expand/flash_tile.cuh"
#include "expand/segments.hpp"
#include "ptx/cp_async.cuh"

namespace mla::MLA_ARCH_NS::flash {

using kernels::expand::AttendParams;
using kernels::expand::Segment;

/// The part of a segment's key list that one block works on: [begin, end), with a hole [skip_begin, skip_end) that no query
/// of the block sees.
struct Span {
  int begin, end, skip_begin, skip_end;
};

/// What a block works on; in shared memory, because the products need the registers.
struct Work {
  Segment segment;
  Span span;
  int head = 0, split = 0, first_query = 0;
};

/// kStages 2: two tiles of keys in shared memory, one barrier a tile. kStages 1: one, K of the next tile is copied beside
/// softmax and P V, V beside Q K^T; half the memory, so that two blocks share a multiprocessor.
template <class T_, int kDqk_, int kDv_, int kWarps_, int kRowTiles_, int kBlockN_, int kStages_>
struct Traits {
  using T = T_;
  static constexpr int kDqk = kDqk_, kDv = kDv_, kWarps = kWarps_, kRowTiles = kRowTiles_, kBlockN = kBlockN_;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlockM = 16 * kRowTiles * kWarps;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kStages == 1 ? 2 : 1;  // a multiprocessor, as far as registers go
  /// Rows are padded by 16 bytes: the eight rows that an ldmatrix reads then lie in different banks.
  struct Shared {
    T q[kBlockM][kDqk + kPad];
    T k[kStages][kBlockN][kDqk + kPad];
    T v[kStages][kBlockN][kDv + kPad];
    Work work;
  };
};

/// One column of 16-byte pieces: where row 0 has it, elements to the next row, and 16 bytes to copy or 0 to clear.
template <class T>
struct Pieces {
  const T* first;
  long long row;
  int bytes;
};

/// Copies rows in 16-byte pieces, rows past the `live` (>= 1) there are as copies of the last: what stands in them must only
/// be finite where the last row is. Neighbouring threads take a row's neighbouring pieces.
template <class T, int kRows, int kColumns, int kThreads, class Source>
__device__ __forceinline__ void load_rows(T (*to)[kColumns + kPad], int live, const Source& source) {
  constexpr int kVectors = kColumns / 8;
  constexpr int kGroup = kVectors % 8 == 0 ? 8 : 4;
  constexpr int kStep = kThreads / kGroup;
  static_assert(kVectors % kGroup == 0 && (kRows % kStep == 0 || kStep % kRows == 0));
  const int column = static_cast<int>(threadIdx.x) % kGroup * 8, row = static_cast<int>(threadIdx.x) / kGroup;
  if (kStep > kRows && row >= kRows) return;
  const uint32_t at = ptx::smem(&to[row][column]);
#pragma unroll
  for (int c = 0; c < kColumns; c += kGroup * 8) {
    const Pieces<T> pieces = source(column + c);
#pragma unroll
    for (int r = 0; r < kRows; r += kStep)
      ptx::cp_async_16(at + (r * (kColumns + kPad) + c) * 2,
                       pieces.first + min(row + r, live - 1) * pieces.row, pieces.bytes);
  }
}

/// Where a tile's K rows come from: [k_nope of this head | k_pe of the row | 0].
template <class T>
struct KeySource {
  const T* nope;  // first row of the tile, this head
  const T* pe;
  int nope_row, pe_row, nope_width, width;
  __device__ Pieces<T> operator()(int column) const {
    if (column < nope_width) return {nope + column, nope_row, 16};
    return column < width ? Pieces<T>{pe + (column - nope_width), pe_row, 16} : Pieces<T>{nope, nope_row, 0};
  }
};
template <class T>
struct PlainSource {
  const T* first;
  long long row;
  int width;
  __device__ Pieces<T> operator()(int column) const {
    return column < width ? Pieces<T>{first + column, row, 16} : Pieces<T>{first, row, 0};
  }
};

template <int kBlockM>
__device__ __forceinline__ Span span_of(const AttendParams& p, const Segment& segment, int first_query,
                                        int split) {
  const long long chunk_first = p.chunk_begin - segment.first_row;
  const long long chunk_last = chunk_first + p.chunk_rows;
  const int count = segment.keys.count();
  const int lo = chunk_first > 0 ? static_cast<int>(chunk_first < count ? chunk_first : count) : 0;
  const int hi = chunk_last < count ? static_cast<int>(chunk_last > 0 ? chunk_last : 0) : count;
  Span span{lo + split * p.split_keys, hi, 0, 0};
  if (split + 1 < p.splits && span.begin + p.split_keys < hi) span.end = span.begin + p.split_keys;
  if (p.segments.topk == 0 && p.segments.mask.causal) {
    const int position = segment.kv_len - segment.q_len + first_query;
    const int last = min(first_query + kBlockM, segment.q_len) - 1 - first_query + position;
    span.end = min(span.end, segment.keys.before(last + 1));
    span.skip_begin = min(p.segments.mask.sink, segment.kv_len);
    span.skip_begin = segment.keys.before(span.skip_begin);
    span.skip_end = segment.keys.before(position + 1 - p.segments.mask.window);
  }
  return span;
}

/// The first tile from `tile` on that is not wholly inside the hole.
template <int kBlockN>
__device__ __forceinline__ int next_tile(const Span& span, int tile) {
  if (tile < span.skip_begin || tile + kBlockN > span.skip_end) return tile;
  return tile + (span.skip_end - tile) / kBlockN * kBlockN;
}

/// Position of queries past the end: before every key, so that causal masks spare their products.
inline constexpr int kNowhere = -(1 << 30);

/// Sets scores of keys that a query must not see to -inf; does nothing where the warp's queries see the whole tile.
template <int kRowTiles, int kBlockN>
__device__ __forceinline__ void mask_scores(Scores<kRowTiles, kBlockN>& s, const AttendParams& p,
                                            const Work& work, int tile, int row_position, int lane) {
  const auto& mask = p.segments.mask;
  const bool listed = p.segments.topk > 0, causal = !listed && mask.causal;
  const int end = work.span.end;
  if (!listed && tile + kBlockN <= end) {
    if (!causal) return;
    const int first = work.segment.keys.position(tile), last = work.segment.keys.position(tile + kBlockN - 1);
    if (last <= row_position && (first > row_position + 16 * kRowTiles - 1 - mask.window || last < mask.sink))
      return;
  }
  const std::uint8_t* const valid =
      p.valid == nullptr ? nullptr : p.valid + (work.segment.first_row - p.chunk_begin);
#pragma unroll
  for (int nt = 0; nt < kBlockN / 8; ++nt) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int index = tile + nt * 8 + (lane & 3) * 2 + e;
      const bool in = index < end && (valid == nullptr || valid[index] != 0);
      const int position = work.segment.keys.position(index);
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = row_position + mt * 16 + half * 8 + (lane >> 2);
          const bool seen =
              in && (!causal || (position <= at && (position > at - mask.window || position < mask.sink)));
          if (!seen) s[mt][nt][2 * half + e] = kNegativeInfinity;
        }
      }
    }
  }
}

/// True if no query of the warp sees any key from the tile on.
template <int kRows>
__device__ __forceinline__ bool is_behind(const AttendParams& p, const Segment& segment, int tile,
                                          int row_position) {
  return p.segments.topk == 0 && p.segments.mask.causal &&
         segment.keys.position(tile) > row_position + kRows - 1;
}

template <class Tr>
__device__ __forceinline__ void store_rows(const AttendParams& p, const Segment& segment,
                                           RowState<Tr::kRowTiles, Tr::kDv>& state, int warp_query, int head,
                                           int split, int lane) {
  using T = typename Tr::T;
#pragma unroll
  for (int mt = 0; mt < Tr::kRowTiles; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(state.sum[mt][half]);
      const int query = warp_query + mt * 16 + half * 8 + (lane >> 2);
      if (query >= segment.q_len) continue;
      const bool empty = state.max[mt][half] == kNegativeInfinity && sum == 0.0F;
      const float factor = empty ? 0.0F : p.value_scale / sum;
      const float lse = empty ? kNegativeInfinity : (state.max[mt][half] + log2f(sum)) * 0.6931471805599453F;
      const long long token = segment.q_begin + query;
      const long long slot = (static_cast<long long>(split) * p.tokens + token) * p.heads + head;
      if ((lane & 3) == 0) {
        if (p.out == nullptr) {
          p.partial_lse[slot] = lse;
        } else if (p.lse != nullptr) {
          p.lse[token * p.lse_token + head * p.lse_head] = lse;
        }
      }
      if (p.out == nullptr && empty) continue;  // the merge does not read such a part
#pragma unroll
      for (int nt = 0; nt < Tr::kDv / 8; ++nt) {
        const int column = nt * 8 + (lane & 3) * 2;
        if (column >= p.v_dim) continue;
        const float x = state.out[mt][nt][2 * half] * factor, y = state.out[mt][nt][2 * half + 1] * factor;
        if (p.out == nullptr) {
          *reinterpret_cast<float2*>(p.partial + slot * p.v_dim + column) = make_float2(x, y);
        } else {
          const long long at = token * p.out_token + head * p.out_head + column;
          if (p.out_f32) {
            *reinterpret_cast<float2*>(static_cast<float*>(p.out) + at) = make_float2(x, y);
          } else {
            *reinterpret_cast<uint32_t*>(static_cast<T*>(p.out) + at) = pack<T>(x, y);
          }
        }
      }
    }
  }
}

template <class Tr>
__global__ void __launch_bounds__(Tr::kThreads, Tr::kBlocks)
    flash_kernel(const __grid_constant__ AttendParams p) {
  using T = typename Tr::T;
  constexpr int kRows = 16 * Tr::kRowTiles;  // of a warp
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<typename Tr::Shared*>(shared_bytes);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

  // Long tiles first; the tiles of a head follow each other, so that its K and V stay in the L2.
  long long block = blockIdx.x;
  const int tile_number = p.tiles - 1 - static_cast<int>(block % p.tiles);
  block /= p.tiles;
  int tile = 0, end = 0, row_position = 0;
  {
    const int head = static_cast<int>(block % p.heads);
    block /= p.heads;
    const int split = static_cast<int>(block % p.splits);
    const int first_query = tile_number * Tr::kBlockM, warp_query = first_query + warp * kRows;
    const Segment segment = kernels::expand::segment_at(p.segments, static_cast<int>(block / p.splits));
    if (first_query >= segment.q_len) return;
    const Span span = span_of<Tr::kBlockM>(p, segment, first_query, split);
    if (threadIdx.x == 0) shared.work = {segment, span, head, split, first_query};
    row_position = warp_query < segment.q_len ? segment.kv_len - segment.q_len + warp_query : kNowhere;
    tile = next_tile<Tr::kBlockN>(span, span.begin);
    end = span.end;
    if (tile < end) {
      const PlainSource<T> queries{
          static_cast<const T*>(p.q) + (segment.q_begin + first_query) * p.q_token + head * p.q_head,
          p.q_token, p.nope + p.rope};
      load_rows<T, Tr::kBlockM, Tr::kDqk, Tr::kThreads>(shared.q, segment.q_len - first_query, queries);
    }
  }
  __syncthreads();
  const auto load_keys = [&](int at, int stage) {
    const long long row = shared.work.segment.first_row - p.chunk_begin + at;
    const int head = shared.work.head;
    const KeySource<T> keys{static_cast<const T*>(p.k_nope) + (row * p.heads + head) * p.nope,
                            static_cast<const T*>(p.k_pe) + row * p.k_pe_row,
                            p.heads * p.nope,
                            static_cast<int>(p.k_pe_row),
                            p.nope,
                            p.nope + p.rope};
    load_rows<T, Tr::kBlockN, Tr::kDqk, Tr::kThreads>(shared.k[stage], end - at, keys);
  };
  const auto load_values = [&](int at, int stage) {
    const long long row = shared.work.segment.first_row - p.chunk_begin + at;
    const int head = shared.work.head;
    const PlainSource<T> values{static_cast<const T*>(p.v) + (row * p.heads + head) * p.v_dim,
                                p.heads * p.v_dim, p.v_dim};
    load_rows<T, Tr::kBlockN, Tr::kDv, Tr::kThreads>(shared.v[stage], end - at, values);
  };

  RowState<Tr::kRowTiles, Tr::kDv> state;
  state.clear();
  if (tile < end) {
    load_keys(tile, 0);
    if constexpr (Tr::kStages > 1) load_values(tile, 0);
    ptx::cp_async_commit();
  }
  int stage = 0;
  while (tile < end) {
    const int following = next_tile<Tr::kBlockN>(shared.work.span, tile + Tr::kBlockN);
    const bool idle = is_behind<kRows>(p, shared.work.segment, tile, row_position);
    ptx::cp_async_wait<0>();
    __syncthreads();  // this tile (one stage: its K) has landed for all; nobody still reads what is overwritten next
    if constexpr (Tr::kStages > 1) {
      if (following < end) {
        load_keys(following, stage ^ 1);
        load_values(following, stage ^ 1);
      }
    } else {
      load_values(tile, 0);
    }
    ptx::cp_async_commit();
    Scores<Tr::kRowTiles, Tr::kBlockN> s;
    if (!idle)
      score_tile<T, Tr::kDqk, Tr::kRowTiles, Tr::kBlockN>(s, &shared.q[warp * kRows][0],
                                                          &shared.k[stage][0][0], lane);
    if constexpr (Tr::kStages == 1) {
      ptx::cp_async_wait<0>();
      __syncthreads();  // V has landed, K is done with
      if (following < end) load_keys(following, 0);
      ptx::cp_async_commit();
    }
    if (!idle) {
      mask_scores<Tr::kRowTiles, Tr::kBlockN>(s, p, shared.work, tile, row_position, lane);
      softmax_step<Tr::kRowTiles, Tr::kBlockN, Tr::kDv>(s, state, p.score_scale);
      value_tile<T, Tr::kDv, Tr::kRowTiles, Tr::kBlockN>(s, state, &shared.v[stage][0][0], lane);
    }
    tile = following;
    if constexpr (Tr::kStages > 1) stage ^= 1;
  }
  store_rows<Tr>(p, shared.work.segment, state, shared.work.first_query + warp * kRows, shared.work.head,
                 shared.work.split, lane);
}

}  // namespace mla::MLA_ARCH_NS::flash
