// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ptx/address.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"

/// The pieces of a flash attention step on mma.sync (m16n8k16), for one warp and kRowTiles x 16 queries:
/// scores = Q K^T from shared memory, online softmax in registers, O += P V with P straight from the
/// registers of the scores. Tiles in shared memory are row-major with kPad spare elements a row, so that the
/// eight rows of an ldmatrix lie in different banks.
namespace mla::MLA_ARCH_NS::flash {

inline constexpr int kPad = 8;
inline constexpr float kNegativeInfinity = -__builtin_huge_valf();
inline constexpr float kLag = 8.0F;
inline constexpr float kNoPivot = -1e38F;  // finite, so that -inf - pivot is -inf and not NaN
inline constexpr float kLargeSum = 0x1p24F, kHopelessSum = 0x1p64F;

/// Running state of one warp's rows. Element (mt, half) of the per-row arrays is row 16 mt + 8 half + lane /
/// 4.
template <int kRowTiles, int kDv>
struct RowState {
  float out[kRowTiles][kDv / 8][4];  // accumulator fragments of O, not yet divided by the sum
  float pivot[kRowTiles][2];         // pivot: a score, in units of log2, that none exceeds by much
  float sum[kRowTiles][2];           // this lane's share of the sum of exp2(score - pivot)

  __device__ void clear() {
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
      for (int nt = 0; nt < kDv / 8; ++nt)
        out[mt][nt][0] = out[mt][nt][1] = out[mt][nt][2] = out[mt][nt][3] = 0.0F;
      pivot[mt][0] = pivot[mt][1] = kNoPivot;
      sum[mt][0] = sum[mt][1] = 0.0F;
    }
  }
};

template <int kRowTiles, int kBlockN>
using Scores = float[kRowTiles][kBlockN / 8][4];

/// s = Q K^T. q: this warp's rows [16 kRowTiles, kDqk]; k: [kBlockN, kDqk].
template <class T, int kDqk, int kRowTiles, int kBlockN>
__device__ __forceinline__ void score_tile(Scores<kRowTiles, kBlockN>& s, const T* q, const T* k, int lane) {
  constexpr int kRow = kDqk + kPad;
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt)
#pragma unroll
    for (int nt = 0; nt < kBlockN / 8; ++nt) s[mt][nt][0] = s[mt][nt][1] = s[mt][nt][2] = s[mt][nt][3] = 0.0F;
  // A fragments: lanes 0..15 name rows, lanes 16..31 the same rows 8 columns on.
  const uint32_t q_at = ptx::smem(q + (lane & 15) * kRow + (lane >> 4) * 8);
  // B fragments of 16 keys: matrices (keys 0-7, d 0-7), (keys 0-7, d 8-15), (keys 8-15, d 0-7), (keys 8-15, d
  // 8-15).
  const uint32_t k_at = ptx::smem(k + ((lane & 7) + (lane >> 4) * 8) * kRow + ((lane >> 3) & 1) * 8);
#pragma unroll
  for (int d = 0; d < kDqk; d += 16) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt) ptx::ldmatrix_x4(a[mt], q_at + (mt * 16 * kRow + d) * 2);
#pragma unroll
    for (int n = 0; n < kBlockN; n += 16) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, k_at + (n * kRow + d) * 2);
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt) {
        ptx::mma<T>(s[mt][n / 8], a[mt], b[0], b[1]);
        ptx::mma<T>(s[mt][n / 8 + 1], a[mt], b[2], b[3]);
      }
    }
  }
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

/// Rescales what was accumulated to new pivots, in units of log2.
template <int kRowTiles, int kDv>
__device__ __forceinline__ void move_pivots(RowState<kRowTiles, kDv>& state,
                                            const float (&to)[kRowTiles][2]) {
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shrink = ptx::ex2(state.pivot[mt][half] - to[mt][half]);
      state.pivot[mt][half] = to[mt][half];
      state.sum[mt][half] *= shrink;
#pragma unroll
      for (int nt = 0; nt < kDv / 8; ++nt) {
        state.out[mt][nt][2 * half] *= shrink;
        state.out[mt][nt][2 * half + 1] *= shrink;
      }
    }
  }
}

/// Before weigh(): raises the pivots to the rows' maxima if some row of the warp has outgrown its own by a
/// factor of 2^kLag in the weights, so that what was accumulated is rescaled a few times in all, not once a
/// tile. f16 weights hold 2^16. True if some row has not seen a key yet: it keeps kNoPivot and sum 0.
template <int kRowTiles, int kBlockN, int kDv>
__device__ __forceinline__ bool raise_pivots(const Scores<kRowTiles, kBlockN>& s,
                                             RowState<kRowTiles, kDv>& state, float scale) {
  float top[kRowTiles][2];
  bool outgrown = false, blind = false;
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = kNegativeInfinity;
#pragma unroll
      for (int nt = 0; nt < kBlockN / 8; ++nt)
        most = fmaxf(most, fmaxf(s[mt][nt][2 * half], s[mt][nt][2 * half + 1]));
      top[mt][half] = fmaxf(quad_max(most) * scale, state.pivot[mt][half]);
      outgrown |= top[mt][half] > state.pivot[mt][half] + kLag;
      blind |= top[mt][half] == kNoPivot;
    }
  }
  if (__any_sync(0xffffffffU, outgrown)) move_pivots<kRowTiles, kDv>(state, top);
  return __any_sync(0xffffffffU, blind) != 0;
}

/// Turns scores (masked ones -inf) into weights exp2(score scale - pivot) and adds them up. NaN scores make
/// the row's sum NaN.
template <int kRowTiles, int kBlockN, int kDv>
__device__ __forceinline__ void weigh(Scores<kRowTiles, kBlockN>& s, RowState<kRowTiles, kDv>& state,
                                      float scale) {
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float pivot = state.pivot[mt][half];
      float sum = state.sum[mt][half];
#pragma unroll
      for (int nt = 0; nt < kBlockN / 8; ++nt) {
        const float x = ptx::ex2(__fmaf_rn(s[mt][nt][2 * half], scale, -pivot));
        const float y = ptx::ex2(__fmaf_rn(s[mt][nt][2 * half + 1], scale, -pivot));
        s[mt][nt][2 * half] = x;
        s[mt][nt][2 * half + 1] = y;
        sum += x + y;
      }
      state.sum[mt][half] = sum;
    }
  }
}

/// In place of raise_pivots() where weights may be as large as f32 holds: looks at the sums alone. True if
/// some sum says that the pivot lagged too far behind for that, so that all must be done again with
/// raise_pivots().
template <int kRowTiles, int kDv>
__device__ __forceinline__ bool lower_sums(RowState<kRowTiles, kDv>& state) {
  bool large = false;
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt)
    large |= !(state.sum[mt][0] <= kLargeSum) | !(state.sum[mt][1] <= kLargeSum);
  if (!__any_sync(0xffffffffU, large)) return false;
  float to[kRowTiles][2];
  bool hopeless = false;
#pragma unroll
  for (int mt = 0; mt < kRowTiles; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_max(state.sum[mt][half]);
      to[mt][half] = state.pivot[mt][half] + (sum > kLargeSum ? ceilf(log2f(sum)) : 0.0F);
      hopeless |= !(state.sum[mt][half] <= kHopelessSum);
    }
  }
  move_pivots<kRowTiles, kDv>(state, to);
  return __any_sync(0xffffffffU, hopeless) != 0;
}

template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(two);
  } else {
    const __half2 two = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(two);
  }
}

/// O += P V. v: [kBlockN, kDv]. The accumulator layout of the scores is the A operand layout of the next
/// product.
template <class T, int kDv, int kRowTiles, int kBlockN>
__device__ __forceinline__ void value_tile(const Scores<kRowTiles, kBlockN>& p,
                                           RowState<kRowTiles, kDv>& state, const T* v, int lane) {
  constexpr int kRow = kDv + kPad;
  // B fragments, transposed on the way: (keys 0-7, d 0-7), (keys 8-15, d 0-7), (keys 0-7, d 8-15), (keys
  // 8-15, d 8-15).
  const uint32_t v_at = ptx::smem(v + (lane & 15) * kRow + (lane >> 4) * 8);
#pragma unroll
  for (int n = 0; n < kBlockN; n += 16) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int mt = 0; mt < kRowTiles; ++mt) {
      a[mt][0] = pack<T>(p[mt][n / 8][0], p[mt][n / 8][1]);
      a[mt][1] = pack<T>(p[mt][n / 8][2], p[mt][n / 8][3]);
      a[mt][2] = pack<T>(p[mt][n / 8 + 1][0], p[mt][n / 8 + 1][1]);
      a[mt][3] = pack<T>(p[mt][n / 8 + 1][2], p[mt][n / 8 + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < kDv; d += 16) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, v_at + (n * kRow + d) * 2);
#pragma unroll
      for (int mt = 0; mt < kRowTiles; ++mt) {
        ptx::mma<T>(state.out[mt][d / 8], a[mt], b[0], b[1]);
        ptx::mma<T>(state.out[mt][d / 8 + 1], a[mt], b[2], b[3]);
      }
    }
  }
}

}  // namespace mla::MLA_ARCH_NS::flash
