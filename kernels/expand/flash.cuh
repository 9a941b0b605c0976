// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "expand/flash_tile.cuh"
#include "expand/segments.hpp"
#include "ptx/cp_async.cuh"

namespace mla::MLA_ARCH_NS::flash {

using kernels::expand::AttendParams;
using kernels::expand::Segment;

template <class T_, int kDqk_, int kDv_, int kWarps_, int kRowTiles_, int kBlockN_>
struct Traits {
  using T = T_;
  static constexpr int kDqk = kDqk_, kDv = kDv_, kWarps = kWarps_, kRowTiles = kRowTiles_, kBlockN = kBlockN_;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlockM = 16 * kRowTiles * kWarps;
  static constexpr int kStages = 2;
  /// Rows are padded by 16 bytes: the eight rows that an ldmatrix reads then lie in different banks.
  struct Shared {
    T q[kBlockM][kDqk + kPad];
    T k[kStages][kBlockN][kDqk + kPad];
    T v[kStages][kBlockN][kDv + kPad];
  };
};

/// Copies `rows` rows of up to 8 kVectors elements in 16-byte pieces; pieces beyond `live` rows become 0.
template <class T, int kRows, int kColumns, int kThreads, class Source>
__device__ __forceinline__ void load_rows(T (*to)[kColumns + kPad], int live, const Source& source) {
  constexpr int kVectors = kColumns / 8;
  constexpr int kSteps = (kRows * kVectors + kThreads - 1) / kThreads;
  constexpr int kUnroll =
      kSteps > 12 ? 4 : kSteps;  // a lone warp has too many pieces to keep all their addresses
#pragma unroll kUnroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = step * kThreads + static_cast<int>(threadIdx.x);
    if (kRows * kVectors % kThreads != 0 && i >= kRows * kVectors) break;
    const int r = i / kVectors, column = i % kVectors * 8;
    const void* from = source(r, column);
    const bool use = r < live && from != nullptr;
    ptx::cp_async_16(ptx::smem(&to[r][column]), use ? from : source.base(), use ? 16 : 0);
  }
}

/// Where a tile's K rows come from: [k_nope of this head | k_pe of the row | 0].
template <class T>
struct KeySource {
  const T* nope;  // first row of the tile, this head
  const T* pe;
  int nope_row, pe_row, nope_width, width;
  __device__ const void* operator()(int r, int column) const {
    if (column < nope_width) return nope + r * nope_row + column;
    return column < width ? pe + r * pe_row + (column - nope_width) : nullptr;
  }
  __device__ const void* base() const { return nope; }
};
template <class T>
struct PlainSource {
  const T* first;
  long long row;
  int width;
  __device__ const void* operator()(int r, int column) const {
    return column < width ? first + r * row + column : nullptr;
  }
  __device__ const void* base() const { return first; }
};

/// The part of a segment's key list that one block works on: [begin, end), with a hole [skip_begin, skip_end) that no query
/// of the block sees.
struct Span {
  int begin, end, skip_begin, skip_end;
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

/// Sets scores of keys that a query must not see to -inf.
template <int kRowTiles, int kBlockN>
__device__ __forceinline__ void mask_tile(Scores<kRowTiles, kBlockN>& s, const AttendParams& p,
                                          const Segment& segment, const Span& span, int tile,
                                          int row_position, const std::uint8_t* valid, int lane) {
  const bool causal = p.segments.topk == 0 && p.segments.mask.causal;
#pragma unroll
  for (int nt = 0; nt < kBlockN / 8; ++nt) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int index = tile + nt * 8 + (lane & 3) * 2 + e;
      const bool in = index < span.end && (valid == nullptr || valid[index] != 0);
      const int position = segment.keys.position(index);
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = row_position + mt * 16 + half * 8 + (lane >> 2);
          const bool seen = in && (!causal || (position <= at && (position > at - p.segments.mask.window ||
                                                                  position < p.segments.mask.sink)));
          if (!seen) s[mt][nt][2 * half + e] = kNegativeInfinity;
        }
      }
    }
  }
}

/// True if some query of the warp does not see some key of the tile.
template <int kRows, int kBlockN>
__device__ __forceinline__ bool needs_mask(const AttendParams& p, const Segment& segment, const Span& span,
                                           int tile, int row_position) {
  if (tile + kBlockN > span.end || p.segments.topk > 0) return true;
  if (!p.segments.mask.causal) return false;
  const int first = segment.keys.position(tile), last = segment.keys.position(tile + kBlockN - 1);
  if (last > row_position) return true;
  return first <= row_position + kRows - 1 - p.segments.mask.window && last >= p.segments.mask.sink;
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
      const float lse = empty ? kNegativeInfinity
                              : (state.max[mt][half] * p.score_scale + log2f(sum)) * 0.6931471805599453F;
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
__global__ void __launch_bounds__(Tr::kThreads) flash_kernel(const __grid_constant__ AttendParams p) {
  using T = typename Tr::T;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<typename Tr::Shared*>(shared_bytes);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

  // Long tiles first; the tiles of a head follow each other, so that its K and V stay in the L2.
  long long block = blockIdx.x;
  const int tile_number = p.tiles - 1 - static_cast<int>(block % p.tiles);
  block /= p.tiles;
  const int head = static_cast<int>(block % p.heads);
  block /= p.heads;
  const int split = static_cast<int>(block % p.splits);
  const Segment segment = kernels::expand::segment_at(p.segments, static_cast<int>(block / p.splits));
  const int first_query = tile_number * Tr::kBlockM;
  if (first_query >= segment.q_len) return;

  const int warp_query = first_query + warp * 16 * Tr::kRowTiles;
  const int row_position = segment.kv_len - segment.q_len + warp_query;
  const Span span = span_of<Tr::kBlockM>(p, segment, first_query, split);

  RowState<Tr::kRowTiles, Tr::kDv> state;
  state.clear();
  int tile = next_tile<Tr::kBlockN>(span, span.begin);
  const long long row0 = segment.first_row - p.chunk_begin;  // buffer row of the segment's key 0
  const std::uint8_t* const valid = p.valid == nullptr ? nullptr : p.valid + row0;
  const auto load_tile = [&](int at, int stage) {
    const long long row = row0 + at;
    const KeySource<T> keys{static_cast<const T*>(p.k_nope) + (row * p.heads + head) * p.nope,
                            static_cast<const T*>(p.k_pe) + row * p.k_pe_row,
                            p.heads * p.nope,
                            static_cast<int>(p.k_pe_row),
                            p.nope,
                            p.nope + p.rope};
    load_rows<T, Tr::kBlockN, Tr::kDqk, Tr::kThreads>(shared.k[stage], span.end - at, keys);
    const PlainSource<T> values{static_cast<const T*>(p.v) + (row * p.heads + head) * p.v_dim,
                                p.heads * p.v_dim, p.v_dim};
    load_rows<T, Tr::kBlockN, Tr::kDv, Tr::kThreads>(shared.v[stage], span.end - at, values);
    ptx::cp_async_commit();
  };

  if (tile < span.end) {
    const PlainSource<T> queries{
        static_cast<const T*>(p.q) + (segment.q_begin + first_query) * p.q_token + head * p.q_head, p.q_token,
        p.nope + p.rope};
    load_rows<T, Tr::kBlockM, Tr::kDqk, Tr::kThreads>(shared.q, segment.q_len - first_query, queries);
    load_tile(tile, 0);
  }
  int stage = 0;
  while (tile < span.end) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // this tile has landed for all; nobody still reads the other stage
    const int following = next_tile<Tr::kBlockN>(span, tile + Tr::kBlockN);
    if (following < span.end) load_tile(following, stage ^ 1);
    Scores<Tr::kRowTiles, Tr::kBlockN> s;
    score_tile<T, Tr::kDqk, Tr::kRowTiles, Tr::kBlockN>(s, &shared.q[warp * 16 * Tr::kRowTiles][0],
                                                        &shared.k[stage][0][0], lane);
    if (needs_mask<16 * Tr::kRowTiles, Tr::kBlockN>(p, segment, span, tile, row_position))
      mask_tile<Tr::kRowTiles, Tr::kBlockN>(s, p, segment, span, tile, row_position, valid, lane);
    softmax_step<Tr::kRowTiles, Tr::kBlockN, Tr::kDv>(s, state, p.score_scale);
    value_tile<T, Tr::kDv, Tr::kRowTiles, Tr::kBlockN>(s, state, &shared.v[stage][0][0], lane);
    tile = following;
    stage ^= 1;
  }
  store_rows<Tr>(p, segment, state, warp_query, head, split, lane);
}

}  // namespace mla::MLA_ARCH_NS::flash
