// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: shared memory of a CTA and how tiles lie in it.
//
//        0   slot 0   73,728   64 keys: [8 groups of 8 keys][8 chunks of 64 channels][8 keys][128 B], then
//   73,728   slot 1   73,728   the rotary part [64 keys][128 B], which becomes the weights [64 rows][64 keys]
//  147,456   query    73,728   [9 chunks][64 rows][128 B], the rotary part last
//  221,184   control
//
// All with the 128-byte swizzle, as the copy engine writes and wgmma reads it. As K, k runs along the 128
// bytes; as V the same bytes are read with k across the keys.
#pragma once

#include <cstdint>

#include "latent/large_work.cuh"
#include "ptx/address.cuh"
#include "ptx/wgmma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr int kLatent = 512, kRope = 64;
inline constexpr int kHalf = 256;  // latent channels of a warpgroup that multiplies values
inline constexpr int kSlots = 2;
inline constexpr std::uint32_t kChunkBytes = 64 * 128;         // 64 rows, 64 channels
inline constexpr std::uint32_t kGroupBytes = 8 * kLatent * 2;  // 8 keys of a slot
inline constexpr std::uint32_t kRopeAt = 8 * kChunkBytes;      // in a slot
inline constexpr std::uint32_t kSlotBytes = kRopeAt + kChunkBytes;
inline constexpr std::uint32_t kQueryAt = kSlots * kSlotBytes;
inline constexpr std::uint32_t kControlAt = kQueryAt + 9 * kChunkBytes;
inline constexpr int kValuesWarps = 8;
/// Steps of 16 channels whose query fragments the scores' warpgroup holds in registers.
inline constexpr int kHeld = 14;
/// More segments than the slots can hold, those of the slowest reader and the one being written.
inline constexpr int kSegments = 6;

/// kTiles: CTAs of a cluster, which load every block together. Each has 64 rows of its own.
template <class Element_, int kTiles_>
struct Traits {
  using Element = Element_;
  static constexpr int kTiles = kTiles_;
  static constexpr int kRows = 64 * kTiles;  // of a row group
};

/// Behind the tiles.
struct alignas(16) Control {
  alignas(8) std::uint64_t full[kSlots];  // keys are here
  std::uint64_t empty[kSlots][2];  // the values of the first and of the last 32 keys have been multiplied
  std::uint64_t weights_full[kSlots][2];  // of the first and of the last 32 keys
  std::uint64_t first_query_full;         // of the first segment, which others fetch
  std::uint64_t query_full, query_empty;
  Segment segments[kSegments];
  float factor[kSlots][64];  // what the sums so far must be multiplied with, a row
  float top[kSlots][64];     // behind the last block: maximum that the weights refer to, and their sum
  float sum[kSlots][64];
  std::uint32_t todo[kernels::latent::kCounterWords];  // slices of a cut unit, see CutUnit
  Work work;
  float4 exchange[2][256];  // of the values' two warpgroups
};

inline constexpr std::size_t kSharedBytes = kControlAt + sizeof(Control);
static_assert(kSharedBytes <= 227 * 1024);

/// Channels 16 s .. 16 s + 15 of the query, s from 0 to 35.
__device__ __forceinline__ std::uint64_t query_operand(std::uint32_t query, int s) {
  return ptx::advance(ptx::descriptor(query, 16, 1024, ptx::Swizzle::k128),
                      (s / 4) * kChunkBytes + (s % 4) * 32);
}
/// The same of the keys of a slot.
__device__ __forceinline__ std::uint64_t key_operand(std::uint32_t slot, int s) {
  if (s < kLatent / 16) {
    return ptx::advance(ptx::descriptor(slot, 16, kGroupBytes, ptx::Swizzle::k128),
                        (s / 4) * 1024 + (s % 4) * 32);
  }
  return ptx::advance(ptx::descriptor(slot, 16, 1024, ptx::Swizzle::k128), kRopeAt + (s % 4) * 32);
}
/// Weights of keys 16 s .. 16 s + 15.
__device__ __forceinline__ std::uint64_t weight_operand(std::uint32_t slot, int s) {
  return ptx::advance(ptx::descriptor(slot, 16, 1024, ptx::Swizzle::k128), kRopeAt + s * 32);
}
/// Latent channels of keys 16 s .. 16 s + 15 as V, from chunk `chunk` on.
__device__ __forceinline__ std::uint64_t value_operand(std::uint32_t slot, int s, int chunk) {
  return ptx::advance(
      ptx::descriptor(slot + static_cast<std::uint32_t>(chunk) * 1024, 1024, kGroupBytes, ptx::Swizzle::k128),
      s * 2 * kGroupBytes);
}

}  // namespace mla::MLA_ARCH_NS::latent::large
