// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "expand/flash_tile.cuh"
#include "expand/segments.hpp"
#include "ptx/cp_async.cuh"
#include "ptx/lane.cuh"

/// Flash attention over dense K and V of every head (docs/kernels/expand.md, docs/kernels/prefill_varlen.md).
///
///   q [tokens, H, P+R], k_nope [rows, H, P], k_pe [rows, R], v [rows, H, V]  ->  out [tokens, H, V], LSE, or partials
///
///   block: kBlockM queries of one head and segment, kRowTiles x 16 a warp; one split of the segment's keys
///   loop:  tile j+1 of kBlockN keys is copied (cp.async, two stages) while each warp does
///          scores of tile j -> masks where the tile has any -> weights -> O += P V
///
/// Bound by what a scheduler can issue: an mma.sync takes 6.4 cycles of it and every other arithmetic
/// instruction about 1.2 more, beside or not. So whatever a tile needs beyond products and softmax is made
/// once a block and kept in shared memory.
namespace mla::MLA_ARCH_NS::flash {

using kernels::expand::AttendParams;
using kernels::expand::Segment;

/// The part of a segment's key list that one block works on: [begin, end), with a hole [skip_begin, skip_end)
/// that no query of the block sees.
struct Span {
  int begin, end, skip_begin, skip_end;
};

/// What one warp's queries see, in indices of the key list: all of them see [all_begin, all_end), none sees
/// any from `none` on. `position` is the first query's.
struct alignas(16) Reach {
  int all_begin, all_end, none, position;
};

/// One column of 16-byte pieces of K or V: where index 0 of the key list has it and bytes to the next row.
/// There are none where the tile is wider than the heads.
struct alignas(16) Pieces {
  const unsigned char* first;
  int row, any;
};

/// What a block works on; in shared memory, because the products need the registers. Keys outside [all_begin,
/// all_end) of the list may be hidden from some of its queries and seen by others.
struct Work {
  Segment segment;
  Span span;
  int head = 0, split = 0, first_query = 0;
  int all_begin = 0, all_end = 0;
};

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
    Pieces pieces[(kDqk + kDv) / 8];
    Reach reach[kWarps];
    Work work;
    int careful[kWarps];  // pivots come from maxima, tile by tile
    int redo, again;      // what was hoped did not hold; this is the second time
  };
};

/// How a block's threads share rows of kColumns elements: neighbours take a row's neighbouring 16-byte
/// pieces.
template <int kColumns, int kThreads>
struct Deal {
  static constexpr int kVectors = kColumns / 8;
  static constexpr int kGroup = kVectors % 8 == 0 ? 8 : 4;  // threads side by side
  static constexpr int kStep = kThreads / kGroup;           // rows apart
  static_assert(kVectors % kGroup == 0);
};

/// This thread's columns of K or of V. Read before the first copy of a tile: a read between copies makes each
/// wait.
template <int kColumns, int kThreads>
struct Columns {
  using D = Deal<kColumns, kThreads>;
  Pieces pieces[D::kVectors / D::kGroup];

  __device__ __forceinline__ explicit Columns(const Pieces* all) {
#pragma unroll
    for (int c = 0; c < D::kVectors / D::kGroup; ++c)
      pieces[c] = all[static_cast<int>(threadIdx.x) % D::kGroup + c * D::kGroup];
  }

  /// Rows [at, at + kRows) of the key list to shared memory. Rows from `end` on are copies of the one before:
  /// their weights are 0, and what they hold is finite wherever that row is.
  template <class T, int kRows>
  __device__ __forceinline__ void copy(T (*to)[kColumns + kPad], int at, int end) const {
    static_assert(kRows % D::kStep == 0 || D::kStep % kRows == 0);
    const int column = static_cast<int>(threadIdx.x) % D::kGroup,
              row = static_cast<int>(threadIdx.x) / D::kGroup;
    if (D::kStep > kRows && row >= kRows) return;
    const uint32_t target = ptx::smem(&to[row][column * 8]);
#pragma unroll
    for (int c = 0; c < D::kVectors / D::kGroup; ++c) {
      if (pieces[c].any == 0) continue;
#pragma unroll
      for (int r = 0; r < kRows; r += D::kStep)
        ptx::cp_async_16(
            target + (r * (kColumns + kPad) + c * D::kGroup * 8) * 2,
            pieces[c].first + static_cast<long long>(min(at + row + r, end - 1)) * pieces[c].row);
    }
  }
};

/// The block's queries to shared memory; rows past the segment's last are copies of it.
template <class T, int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void copy_queries(T (*to)[kColumns + kPad], const AttendParams& p,
                                             const Segment& segment, int head, int first_query) {
  using D = Deal<kColumns, kThreads>;
  const int column = static_cast<int>(threadIdx.x) % D::kGroup * 8,
            row = static_cast<int>(threadIdx.x) / D::kGroup;
  const T* const first = static_cast<const T*>(p.q) + head * p.q_head;
#pragma unroll 1
  for (int r = row; r < kRows; r += D::kStep) {
    const long long token = segment.q_begin + min(first_query + r, segment.q_len - 1);
#pragma unroll
    for (int c = column; c < kColumns; c += D::kGroup * 8) {
      const bool there = c < p.nope + p.rope;
      ptx::cp_async_16(ptx::smem(&to[r][c]), first + token * p.q_token + (there ? c : 0), there ? 16 : 0);
    }
  }
}

/// [k_nope of this head | k_pe of the row | nothing] and [v of this head | nothing]. What is nothing is cleared here, once:
/// no copy goes there.
template <class Tr>
__device__ __forceinline__ void make_pieces(typename Tr::Shared& shared, const AttendParams& p,
                                            const Segment& segment, int head) {
  using T = typename Tr::T;
  const long long row = segment.first_row - p.chunk_begin;
  const T* const nope = static_cast<const T*>(p.k_nope) + (row * p.heads + head) * p.nope;
  const T* const pe = static_cast<const T*>(p.k_pe) + row * p.k_pe_row;
  const T* const v = static_cast<const T*>(p.v) + (row * p.heads + head) * p.v_dim;
  for (int i = static_cast<int>(threadIdx.x); i < (Tr::kDqk + Tr::kDv) / 8; i += Tr::kThreads) {
    const bool key = i * 8 < Tr::kDqk;
    const int column = key ? i * 8 : i * 8 - Tr::kDqk;
    const T* first = nullptr;
    int stride = p.heads * (key ? p.nope : p.v_dim);
    if (!key) {
      if (column < p.v_dim) first = v + column;
    } else if (column < p.nope) {
      first = nope + column;
    } else if (column < p.nope + p.rope) {
      first = pe + (column - p.nope);
      stride = static_cast<int>(p.k_pe_row);
    }
    shared.pieces[i] = {reinterpret_cast<const unsigned char*>(first), stride * static_cast<int>(sizeof(T)),
                        first != nullptr ? 1 : 0};
    if (first != nullptr) continue;
    for (int r = 0; r < Tr::kStages * Tr::kBlockN; ++r)
      *reinterpret_cast<uint4*>(key ? &shared.k[0][r][column] : &shared.v[0][r][column]) =
          make_uint4(0, 0, 0, 0);
  }
}

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

/// Reach of `rows` queries from position `position` on; `rows` 0 if the warp has none.
__device__ __forceinline__ Reach reach_of(const AttendParams& p, const Segment& segment, const Span& span,
                                          int position, int rows) {
  constexpr int kNever = 0x7fffffff;
  if (rows <= 0) return {0, 0, 0, position};
  if (p.segments.topk > 0) return {0, 0, kNever, position};
  if (!p.segments.mask.causal) return {0, span.end, kNever, position};
  const auto& keys = segment.keys;
  return {keys.before(position + rows - p.segments.mask.window), min(span.end, keys.before(position + 1)),
          keys.before(position + rows), position};
}

/// The block's work. A lone query, an explicit index and no mask have no keys that only some queries see.
template <int kBlockM>
__device__ __forceinline__ Work work_of(const AttendParams& p, const Segment& segment, const Span& span,
                                        int head, int split, int first_query) {
  const int rows = min(kBlockM, segment.q_len - first_query);
  Work work{segment, span, head, split, first_query, 0, 0x7fffffff};
  if (rows == 1 || p.segments.topk > 0 || !p.segments.mask.causal) return work;
  const Reach reach = reach_of(p, segment, span, segment.kv_len - segment.q_len + first_query, rows);
  work.all_begin = reach.all_begin;
  work.all_end = reach.all_end;
  return work;
}

/// Whether tile [tile, tile + kBlockN) has keys that only some of the block's queries see.
template <int kBlockN>
__device__ __forceinline__ bool has_unshared(const Work& work, int tile) {
  return tile < work.all_begin || tile + kBlockN > work.all_end;
}

/// Clears what is not finite in the values of such keys: 0 times it would be NaN in the queries that do not
/// see them, and those that do have a weight that is not finite either. For all threads, between barriers.
template <class T, int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void clear_unshared(T (*v)[kColumns + kPad], const Work& work, int tile) {
  constexpr int kWords = kColumns / 2;
  constexpr uint32_t kExponent = std::is_same_v<T, __nv_bfloat16> ? 0x7f80U : 0x7c00U;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kWords; i += kThreads) {
    const int row = i / kWords, index = tile + row;
    if (index >= work.all_begin && index < work.all_end) continue;
    uint32_t& word = reinterpret_cast<uint32_t*>(v[row])[i % kWords];
    uint32_t kept = word;
    if ((kept & kExponent) == kExponent) kept &= 0xffff0000U;
    if ((kept >> 16 & kExponent) == kExponent) kept &= 0x0000ffffU;
    if (kept != word) word = kept;
  }
}

/// Sets scores of keys that a query must not see to -inf. All in indices of the key list: a query sees [from,
/// to) and the sinks before `sinks`.
template <int kRowTiles, int kBlockN>
__device__ __forceinline__ void mask_scores(Scores<kRowTiles, kBlockN>& s, const AttendParams& p,
                                            const Work& work, int tile, int first_position) {
  const int lane = ptx::lane_now();
  const int end = work.span.end, first = tile + (lane & 3) * 2;
  if (p.segments.topk > 0) {
    const std::uint8_t* const valid = p.valid + (work.segment.first_row - p.chunk_begin);
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) {  // pairs of neighbours: nt = i / 2, e = i % 2
      const int index = first + i / 2 * 8 + i % 2;
      if (index < end && valid[index] != 0) continue;
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt)
        s[mt][i / 2][i % 2] = s[mt][i / 2][2 + i % 2] = kNegativeInfinity;
    }
    return;
  }
  const auto& keys = work.segment.keys;
  const int sinks = keys.before(p.segments.mask.sink);
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_position + mt * 16 + half * 8 + (lane >> 2);
      const int to = p.segments.mask.causal ? min(end, keys.before(position + 1)) : end;
      const int from = p.segments.mask.causal ? keys.before(position + 1 - p.segments.mask.window) : 0;
#pragma unroll
      for (int i = 0; i < kBlockN / 4; ++i) {
        const int index = first + i / 2 * 8 + i % 2;
        const bool seen = (index < to) & ((index >= from) | (index < sinks));
        if (!seen) s[mt][i / 2][2 * half + i % 2] = kNegativeInfinity;
      }
    }
  }
}

template <class Tr>
__device__ __forceinline__ void store_rows(const AttendParams& p, const Segment& segment,
                                           RowState<Tr::kRowTiles, Tr::kDv>& state, int warp_query, int head,
                                           int split) {
  const int lane = ptx::lane_now();
  using T = typename Tr::T;
#pragma unroll
  for (int mt = 0; mt < Tr::kRowTiles; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(state.sum[mt][half]);
      const int query = warp_query + mt * 16 + half * 8 + (lane >> 2);
      if (query >= segment.q_len) continue;
      const bool empty = sum == 0.0F && state.pivot[mt][half] == kNoPivot;
      const float factor = empty ? 0.0F : p.value_scale / sum;
      const float lse =
          empty ? kNegativeInfinity : (state.pivot[mt][half] + log2f(sum)) * 0.6931471805599453F;
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
  constexpr int kRows = 16 * Tr::kRowTiles;  // of a warp
  constexpr bool kHopeful = std::is_same_v<T, __nv_bfloat16>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<typename Tr::Shared*>(shared_bytes);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

  {
    // Long tiles first; the tiles of a head follow each other, so that its K and V stay in the L2.
    long long block = blockIdx.x;
    const int first_query = (p.tiles - 1 - static_cast<int>(block % p.tiles)) * Tr::kBlockM;
    block /= p.tiles;
    const int head = static_cast<int>(block % p.heads);
    block /= p.heads;
    const int split = static_cast<int>(block % p.splits);
    const Segment segment = kernels::expand::segment_at(p.segments, static_cast<int>(block / p.splits));
    if (first_query >= segment.q_len) return;
    const Span span = span_of<Tr::kBlockM>(p, segment, first_query, split);
    if (span.begin < span.end)
      copy_queries<T, Tr::kBlockM, Tr::kDqk, Tr::kThreads>(shared.q, p, segment, head, first_query);
    make_pieces<Tr>(shared, p, segment, head);
    if (threadIdx.x == 0) {
      shared.work = work_of<Tr::kBlockM>(p, segment, span, head, split, first_query);
      shared.redo = shared.again = 0;
    }
    shared.careful[warp] = 1;
    const int query = first_query + warp * kRows;
    shared.reach[warp] =
        reach_of(p, segment, span, segment.kv_len - segment.q_len + query, min(kRows, segment.q_len - query));
  }
  __syncthreads();
  const auto copy_tile = [&](int at, int stage) {
    const int end = shared.work.span.end;
    const Columns<Tr::kDqk, Tr::kThreads> keys(shared.pieces);
    const Columns<Tr::kDv, Tr::kThreads> values(shared.pieces + Tr::kDqk / 8);
    keys.template copy<T, Tr::kBlockN>(shared.k[stage], at, end);
    values.template copy<T, Tr::kBlockN>(shared.v[stage], at, end);
    ptx::cp_async_commit();
  };

  RowState<Tr::kRowTiles, Tr::kDv> state;
#pragma unroll 1
  while (true) {
    state.clear();
    int tile = next_tile<Tr::kBlockN>(shared.work.span, shared.work.span.begin), stage = 0;
    if (tile < shared.work.span.end) copy_tile(tile, 0);
    while (tile < shared.work.span.end) {
      ptx::cp_async_wait<0>();
      __syncthreads();  // this tile has landed for all; nobody still reads the other stage
      const int following = next_tile<Tr::kBlockN>(shared.work.span, tile + Tr::kBlockN);
      if (following < shared.work.span.end) copy_tile(following, stage ^ 1);
      if (has_unshared<Tr::kBlockN>(shared.work, tile)) {
        clear_unshared<T, Tr::kBlockN, Tr::kDv, Tr::kThreads>(shared.v[stage], shared.work, tile);
        __syncthreads();
      }
      if (tile < shared.reach[warp].none) {
        if (kHopeful && lower_sums<Tr::kRowTiles, Tr::kDv>(state)) shared.redo = 1;
        Scores<Tr::kRowTiles, Tr::kBlockN> s;
        score_tile<T, Tr::kDqk, Tr::kRowTiles, Tr::kBlockN>(s, &shared.q[warp * kRows][0],
                                                            &shared.k[stage][0][0], lane);
        const Reach reach = shared.reach[warp];
        const bool whole = tile >= reach.all_begin && tile + Tr::kBlockN <= reach.all_end;
        if (!whole) mask_scores<Tr::kRowTiles, Tr::kBlockN>(s, p, shared.work, tile, reach.position);
        if (!kHopeful || !whole || shared.careful[warp] != 0) {
          const bool blind = raise_pivots<Tr::kRowTiles, Tr::kBlockN, Tr::kDv>(s, state, p.score_scale);
          __syncwarp();  // all lanes have read it
          if (kHopeful && lane == 0) shared.careful[warp] = blind || shared.again != 0 ? 1 : 0;
        }
        weigh<Tr::kRowTiles, Tr::kBlockN, Tr::kDv>(s, state, p.score_scale);
        value_tile<T, Tr::kDv, Tr::kRowTiles, Tr::kBlockN>(s, state, &shared.v[stage][0][0], lane);
      }
      tile = following;
      stage ^= 1;
    }
    if (!kHopeful || shared.again != 0) break;
    if (lower_sums<Tr::kRowTiles, Tr::kDv>(state)) shared.redo = 1;
    __syncthreads();
    if (shared.redo == 0) break;
    __syncthreads();  // all have read `again`
    if (threadIdx.x == 0) shared.again = 1;
    if (lane == 0) shared.careful[warp] = 1;
  }
  store_rows<Tr>(p, shared.work.segment, state, shared.work.first_query + warp * kRows, shared.work.head,
                 shared.work.split);
}

}  // namespace mla::MLA_ARCH_NS::flash
