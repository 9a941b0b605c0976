// SPDX-License-Identifier: Apache-2.0
// Compile-time shape of cuda-splitkv and its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/block_memory.cuh"
#include "splitkv/schedule.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

inline constexpr int kMaxRope = 64;
inline constexpr int kChunk = 16;  // bytes that a copy or a row of ldmatrix moves
inline constexpr int kLine = 8;    // chunks of a 128-byte line: what all banks hold

/// Rows of 16-bit elements lie in lines of 128 bytes; chunk c of row r stands where c's low bits are
/// exclusive-ored with r's, so that the same chunk of eight neighbouring rows touches all banks. Byte offset
/// within a row.
__device__ __forceinline__ constexpr std::uint32_t swizzle(int row, int chunk) {
  return static_cast<std::uint32_t>(((chunk & ~(kLine - 1)) | ((chunk ^ row) & (kLine - 1))) * kChunk);
}

/// kRows queries x heads against tiles of kKeys keys of L latent and at most 64 rotary channels. The eight
/// warps form kScoreRows x kScoreKeys x kScoreSplit for S = Q K^T (the last cuts the channels, partial sums
/// meet in shared memory) and kValueRows x the rest over channels for O = P V.
template <class Element, int kLatent_, int kRows_, int kKeys_, int kScoreRows_, int kScoreKeys_,
          int kScoreSplit_, int kValueRows_, bool kFp8_>
struct Traits {
  using T = Element;
  static constexpr int kLatent = kLatent_;
  static constexpr int kRows = kRows_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kScoreRows = kScoreRows_;
  static constexpr int kScoreKeys = kScoreKeys_;
  static constexpr int kScoreSplit = kScoreSplit_;
  static constexpr int kValueRows = kValueRows_;
  static constexpr int kValueColumns = kThreads / 32 / kValueRows;
  static constexpr bool kFp8 = kFp8_;
  /// Blocks side by side on a multiprocessor hide each other's waits. More output leaves no registers for
  /// two, and two rings of 512 channels want large blocks of shared memory.
  static constexpr int kBlocks =
      (kRows == 16 && (kLatent < 512 || kLargeBlocks)) || kRows * kLatent <= 32 * 128 ? 2 : 1;
  static_assert(kScoreRows * kScoreKeys * kScoreSplit == kThreads / 32);

  // One warp's share of the scores and of the values, in mma tiles.
  static constexpr int kScoreRowTiles = kRows / kScoreRows / 16;
  static constexpr int kScoreKeyTiles = kKeys / kScoreKeys / 8;
  static constexpr int kValueRowTiles = kRows / kValueRows / 16;
  static constexpr int kValueWidth = kLatent / kValueColumns;
  static_assert(kScoreRowTiles >= 1 && kScoreKeyTiles >= 1 && kValueRowTiles >= 1 && kValueWidth % 16 == 0);

  // Channels come in groups of 64: a line. The four steps of 16 in a line are dealt out to kScoreSplit warps.
  static constexpr int kLines = kLatent / 64;
  static constexpr int kSteps = 4 / kScoreSplit;
  // A query of few rows stays in registers as fragments; more rows go to shared memory.
  static constexpr bool kQueryInRegisters = kSteps == 1;

  // Softmax: a row belongs to kLanes neighbouring lanes, which take pairs of columns in turn.
  static constexpr int kLanes = kThreads / kRows;
  static constexpr int kPairs = kKeys / kLanes / 2;
  static_assert(kLanes <= 32 && kPairs >= 1);

  static constexpr int kRowBytes = (kLatent + kMaxRope) * 2;
  static constexpr int kTileBytes = kKeys * kRowBytes;
  // e4m3 rows as they come: latent, 16 bytes of scales, rotary part of at most 128 bytes.
  static constexpr int kRawRowBytes = kLatent + 16 + 2 * kMaxRope;
  static constexpr int kRawTileBytes = kKeys * kRawRowBytes;
  static constexpr int kScorePitch =
      kKeys + 8;                            // floats: stores of four rows by eight lanes touch all banks once
  static constexpr int kWeightBytes = 128;  // a row of P

  // Shared memory, in this order; the ring comes last.
  static constexpr int kQueryAt = 0;
  static constexpr int kScoresAt = kQueryAt + (kQueryInRegisters ? 0 : kRows * kRowBytes);
  static constexpr int kWeightsAt = kScoresAt + kScoreSplit * kRows * kScorePitch * 4;
  static constexpr int kWideAt = kWeightsAt + kRows * kWeightBytes;  // fp8: the tile, widened
  static constexpr int kShrinkAt = kWideAt + (kFp8 ? kTileBytes : 0);
  static constexpr int kSumAt = kShrinkAt + kRows * 4;
  static constexpr int kSightAt = kSumAt + kRows * 4;
  static constexpr int kLocatorAt = kSightAt + (kRows + 2) * 16;
  static constexpr int kRingAt = (kLocatorAt + static_cast<int>(sizeof(Locator)) + 127) / 128 * 128;
  static constexpr int kPositionBytes = (kKeys * 4 + 127) / 128 * 128;
  static constexpr int kStageBytes = (kFp8 ? kRawTileBytes : kTileBytes) + kPositionBytes;
};

/// Where things are in a block's shared memory.
template <class Config>
struct Shared {
  std::byte* base;

  __device__ __forceinline__ std::byte* query() const { return base + Config::kQueryAt; }
  /// [kScoreSplit, kRows, kScorePitch] partial scores
  __device__ __forceinline__ float* scores() const {
    return reinterpret_cast<float*>(base + Config::kScoresAt);
  }
  /// [kRows] rows of kWeightBytes, swizzled
  __device__ __forceinline__ std::byte* weights() const { return base + Config::kWeightsAt; }
  __device__ __forceinline__ std::byte* wide() const { return base + Config::kWideAt; }
  /// [kRows] factor by which the accumulated output shrinks before this tile
  __device__ __forceinline__ float* shrink() const {
    return reinterpret_cast<float*>(base + Config::kShrinkAt);
  }
  /// [kRows] at the end of a unit
  __device__ __forceinline__ float* sum() const { return reinterpret_cast<float*>(base + Config::kSumAt); }
  /// [kRows + 2] what a row sees (Sight::packed); behind them the first and the last row of the
  /// group, each with one end of the tiles that need no mask
  __device__ __forceinline__ int4* sight() const { return reinterpret_cast<int4*>(base + Config::kSightAt); }
  __device__ __forceinline__ Locator& locator() const {
    return *reinterpret_cast<Locator*>(base + Config::kLocatorAt);
  }
  /// A stage's tile as it came from memory, [kKeys] rows.
  __device__ __forceinline__ std::byte* ring(int stage) const {
    return base + Config::kRingAt + stage * Config::kStageBytes + Config::kPositionBytes;
  }
  /// [kKeys] positions of a stage's keys; -1: none
  __device__ __forceinline__ std::int32_t* positions(int stage) const {
    return reinterpret_cast<std::int32_t*>(base + Config::kRingAt + stage * Config::kStageBytes);
  }
  /// The tile that the products read.
  __device__ __forceinline__ std::byte* tile(int stage) const { return Config::kFp8 ? wide() : ring(stage); }
};

}  // namespace mla::MLA_ARCH_NS::splitkv
