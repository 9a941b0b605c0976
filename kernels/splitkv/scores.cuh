// SPDX-License-Identifier: Apache-2.0
// First product: S = Q K^T of a tile.
#pragma once

#include "ptx/address.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "splitkv/rows.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

/// What a warp does of the scores: rows x keys x every so-manieth step of 16 channels.
template <class Config>
struct ScoreWarp {
  static constexpr int kRows = Config::kScoreRowTiles * 16;
  static constexpr int kKeys = Config::kScoreKeyTiles * 8;
  int row, key, split;

  __device__ __forceinline__ ScoreWarp() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    split = warp % Config::kScoreSplit;
    key = warp / Config::kScoreSplit % Config::kScoreKeys * kKeys;
    row = warp / Config::kScoreSplit / Config::kScoreKeys * kRows;
  }
};

/// The query of a row group: fragments in registers, or a tile in shared memory.
template <class Config>
struct Query {
  static constexpr int kGroups = Config::kLines + 1;  // the last one is the rotary part
  std::uint32_t fragment[Config::kQueryInRegisters ? Config::kScoreRowTiles : 1]
                        [Config::kQueryInRegisters ? kGroups : 1][4];

  __device__ __forceinline__ void load(const Params& p, const Shared<Config>& shared, const Unit& unit,
                                       std::int32_t first_row) {
    if constexpr (Config::kQueryInRegisters) {
      load_fragments(p, unit, first_row);
    } else {
      copy_tile(p, shared, unit, first_row);
    }
  }

 private:
  using T = typename Config::T;

  static __device__ __forceinline__ const T* row_pointer(const Params& p, const Unit& unit,
                                                         std::int32_t row) {
    const RowId id = row_id(p, unit, row);
    const kernels::TensorParams& q = p.attention.q;
    return static_cast<const T*>(q.data) + id.token * q.stride_token + id.head * q.stride_head;
  }

  __device__ __forceinline__ void load_fragments(const Params& p, const Unit& unit, std::int32_t first_row) {
    const ScoreWarp<Config> warp;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < Config::kScoreRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int32_t row = first_row + warp.row + m * 16 + half * 8 + lane / 4;
        const bool exists = row < unit.rows(p);
        const T* from = row_pointer(p, unit, exists ? row : 0) + warp.split * 16 + lane % 4 * 2;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const bool wanted = exists && (g < Config::kLines || warp.split * 16 < p.attention.rope);
          fragment[m][g][half] = wanted ? *reinterpret_cast<const std::uint32_t*>(from + g * 64) : 0;
          fragment[m][g][half + 2] = wanted ? *reinterpret_cast<const std::uint32_t*>(from + g * 64 + 8) : 0;
        }
      }
    }
  }

  static __device__ __forceinline__ void copy_tile(const Params& p, const Shared<Config>& shared,
                                                   const Unit& unit, std::int32_t first_row) {
    const int lane = static_cast<int>(threadIdx.x) % kLine;
    for (int r = static_cast<int>(threadIdx.x) / kLine; r < Config::kRows; r += kThreads / kLine) {
      const bool exists = first_row + r < unit.rows(p);
      const T* from = row_pointer(p, unit, exists ? first_row + r : 0) + lane * 8;
      const std::uint32_t to = ptx::smem(shared.query() + r * Config::kRowBytes) + swizzle(r, lane);
#pragma unroll
      for (int line = 0; line < Config::kLines; ++line) {
        ptx::cp_async_16(to + line * 128, from + line * 64, exists ? kChunk : 0);
      }
      if (lane * 8 < p.attention.rope) {
        ptx::cp_async_16(to + Config::kLines * 128, from + Config::kLatent, exists ? kChunk : 0);
      }
    }
    ptx::cp_async_commit();
  }
};

/// What one step of 16 channels multiplies.
template <class Config>
struct ScoreFragments {
  std::uint32_t q[Config::kQueryInRegisters ? 1 : Config::kScoreRowTiles][4];
  std::uint32_t k[Config::kScoreKeyTiles][2];
};

/// S of one tile, partial over channels, to shared memory. Unscaled.
template <class Config>
__device__ __forceinline__ void compute_scores(const Params& p, const Shared<Config>& shared, int stage,
                                               const Query<Config>& query) {
  using T = typename Config::T;
  using Fragments = ScoreFragments<Config>;
  const ScoreWarp<Config> warp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float s[Config::kScoreRowTiles][Config::kScoreKeyTiles][4] = {};

  // ldmatrix: lane -> row of a 16x16 block of Q, row of a 16-key x 16-channel block of K. Rows start at
  // multiples of 8, so the swizzle depends on the lane alone, and a step within a line is an exclusive-or.
  const std::uint32_t q_row = ptx::smem(shared.query()) + (warp.row + lane % 16) * Config::kRowBytes;
  const std::uint32_t k_row =
      ptx::smem(shared.tile(stage)) + (warp.key + lane / 16 * 8 + lane % 8) * Config::kRowBytes;
  const auto load = [&](Fragments& f, int line, int step) {
    const int chunk = (warp.split * Config::kSteps + step) * 2;
    if constexpr (!Config::kQueryInRegisters) {
      const std::uint32_t q_at = q_row + line * 128 + swizzle(lane, chunk + lane / 16);
#pragma unroll
      for (int m = 0; m < Config::kScoreRowTiles; ++m) {
        ptx::ldmatrix_x4(f.q[m], q_at + m * 16 * Config::kRowBytes);
      }
    }
    const std::uint32_t k_at = k_row + line * 128 + swizzle(lane, chunk + lane / 8 % 2);
#pragma unroll
    for (int n = 0; n < Config::kScoreKeyTiles; n += 2) {
      if (n + 1 < Config::kScoreKeyTiles) {
        std::uint32_t two[4];
        ptx::ldmatrix_x4(two, k_at + n * 8 * Config::kRowBytes);
        f.k[n][0] = two[0], f.k[n][1] = two[1], f.k[n + 1][0] = two[2], f.k[n + 1][1] = two[3];
      } else {  // an odd number of key tiles: the last one alone
        ptx::ldmatrix_x2(f.k[n], k_at + n * 8 * Config::kRowBytes);
      }
    }
  };
  const auto multiply = [&](const Fragments& f, [[maybe_unused]] int line) {
#pragma unroll
    for (int n = 0; n < Config::kScoreKeyTiles; ++n) {
#pragma unroll
      for (int m = 0; m < Config::kScoreRowTiles; ++m) {
        if constexpr (Config::kQueryInRegisters) {
          ptx::mma<T>(s[m][n], query.fragment[m][line], f.k[n][0], f.k[n][1]);
        } else {
          ptx::mma<T>(s[m][n], f.q[m], f.k[n][0], f.k[n][1]);
        }
      }
    }
  };
  const auto has_rope = [&](int step) {
    return (warp.split * Config::kSteps + step) * 16 < p.attention.rope;
  };
  if constexpr (Config::kQueryInRegisters) {
    static_assert(Config::kSteps == 1);
    Fragments f;
#pragma unroll
    for (int line = 0; line < Config::kLines; ++line) {
      load(f, line, 0);
      multiply(f, line);
    }
    if (has_rope(0)) {
      load(f, Config::kLines, 0);
      multiply(f, Config::kLines);
    }
  } else {
    // The fragments of a step are on their way while the one before is multiplied. The rotary line may not
    // exist, but lies in the tile.
    static_assert(Config::kSteps == 2);
    Fragments even, odd;
    load(even, 0, 0);
#pragma unroll 1
    for (int line = 0; line < Config::kLines; ++line) {
      load(odd, line, 1);
      multiply(even, line);
      load(even, line + 1, 0);
      multiply(odd, line);
    }
    if (has_rope(1)) load(odd, Config::kLines, 1);
    if (has_rope(0)) multiply(even, Config::kLines);
    if (has_rope(1)) multiply(odd, Config::kLines);
  }

  float* to = shared.scores() + (warp.split * Config::kRows + warp.row + lane / 4) * Config::kScorePitch +
              warp.key + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < Config::kScoreRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Config::kScoreKeyTiles; ++n) {
      float* at = to + m * 16 * Config::kScorePitch + n * 8;
      *reinterpret_cast<float2*>(at) = make_float2(s[m][n][0], s[m][n][1]);
      *reinterpret_cast<float2*>(at + 8 * Config::kScorePitch) = make_float2(s[m][n][2], s[m][n][3]);
    }
  }
}

}  // namespace mla::MLA_ARCH_NS::splitkv
