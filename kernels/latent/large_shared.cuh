// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: shared memory of a CTA and how tiles lie in it.
//
// A CTA of a pair has half the channels: 256 of the latent part (4 chunks of 64) and 32 of the rotary part, 576 bytes
// of each row. Tiles are what the copy engine and wgmma agree on:
//
//   keys     [8 groups of 8 keys][4 chunks][8 keys][128 B] with the 128-byte swizzle, then [64 keys][64 B] with the
//            64-byte swizzle: as K, k runs along the 128 bytes; as V the same bytes are read with k across the keys
//   query    [4 chunks][64 rows][128 B], then [64 rows][64 B]
#pragma once

#include <cstdint>

#include "latent/large_work.cuh"
#include "ptx/address.cuh"
#include "ptx/wgmma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr int kHalfLatent = 256;  // channels of a CTA
inline constexpr int kHalfRope = 32;
inline constexpr std::uint32_t kTileBytes = 64 * (kHalfLatent + kHalfRope) * 2;  // 36,864: 64 keys, or 64 query rows
inline constexpr std::uint32_t kRopeAt = 64 * kHalfLatent * 2;                   // in a tile
inline constexpr std::uint32_t kGroupBytes = 8 * kHalfLatent * 2;                // 8 keys
inline constexpr std::uint32_t kExchangeBytes = 64 * 64 * 4;
inline constexpr int kMostSlots = 4;
inline constexpr int kSegments = 8;  // more than the slots can hold, those of the slowest reader and one being written

/// kTiles = 2: the two warpgroups have 64 rows each and both see all blocks. kTiles = 1: they share 64 rows and take
/// blocks in turn. Query and ring together are five tiles either way.
template <class Element_, int kTiles_>
struct Traits {
  using Element = Element_;
  static constexpr int kTiles = kTiles_;
  static constexpr int kRows = 64 * kTiles;
  static constexpr int kSlots = 5 - kTiles;
  static constexpr int kStep = kTiles == 1 ? 2 : 1;  // blocks from one of a warpgroup's to its next
  static constexpr std::uint32_t kQueryAt = 0;
  static constexpr std::uint32_t kRingAt = kTiles * kTileBytes;
  static constexpr std::uint32_t kExchangeAt = 5 * kTileBytes;
};

/// Behind the tiles.
struct Control {
  alignas(8) std::uint64_t full[kMostSlots];
  std::uint64_t empty[kMostSlots];
  std::uint64_t query_full, query_empty;
  std::uint64_t exchange_full[2];   // [warpgroup]: the other CTA's scores are here
  std::uint64_t exchange_empty[2];  // the other CTA has read what this one sent
  Segment segments[kSegments];
  float top[2][64];   // [warpgroup]: maximum and sum at the end of a segment
  float sum[2][64];
  std::int32_t last_arrival[2];
  RangeScratch range;
};

inline constexpr std::uint32_t kControlAt = 5 * kTileBytes + 2 * kExchangeBytes;
inline constexpr std::size_t kSharedBytes = kControlAt + sizeof(Control);
static_assert(kSharedBytes <= 227 * 1024);

/// Chunks and k steps of 16 channels: 16 of the latent part, then 2 of the rotary part.
inline constexpr int kLatentSteps = kHalfLatent / 16;
inline constexpr int kScoreSteps = kLatentSteps + kHalfRope / 16;

/// Descriptors of k step s of a tile at shared address `tile`.
__device__ __forceinline__ std::uint64_t query_operand(std::uint32_t tile, int s) {
  if (s < kLatentSteps) {
    return ptx::advance(ptx::descriptor(tile, 16, 1024, ptx::Swizzle::k128), (s / 4) * 8192 + (s % 4) * 32);
  }
  return ptx::advance(ptx::descriptor(tile, 16, 512, ptx::Swizzle::k64), kRopeAt + (s - kLatentSteps) * 32);
}
__device__ __forceinline__ std::uint64_t key_operand(std::uint32_t tile, int s) {
  if (s < kLatentSteps) {
    return ptx::advance(ptx::descriptor(tile, 16, kGroupBytes, ptx::Swizzle::k128), (s / 4) * 1024 + (s % 4) * 32);
  }
  return ptx::advance(ptx::descriptor(tile, 16, 512, ptx::Swizzle::k64), kRopeAt + (s - kLatentSteps) * 32);
}
/// Keys 16 s .. 16 s + 15 as V.
__device__ __forceinline__ std::uint64_t value_operand(std::uint32_t tile, int s) {
  return ptx::advance(ptx::descriptor(tile, 1024, kGroupBytes, ptx::Swizzle::k128), s * 2 * kGroupBytes);
}

}  // namespace mla::MLA_ARCH_NS::latent::large
