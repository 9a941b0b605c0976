// SPDX-License-Identifier: Apache-2.0
// Compile-time shape of the small-work kernel and its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "latent/work.cuh"

namespace mla::MLA_ARCH_NS::latent {

inline constexpr int kMathWarps = 8;
inline constexpr int kMathThreads = kMathWarps * 32;
inline constexpr int kLoadWarps = 4;
inline constexpr int kLoadThreads = kLoadWarps * 32;
inline constexpr int kUnit = kLoadWarps * kGroup;  // entries of a slot of the ring: one group a load warp
inline constexpr int kQuarters = 4;                // of the channels of a score, added up in shared memory
inline constexpr int kLane = 16;                   // bytes that a copy or a row of ldmatrix moves

/// 16-bit rows lie in boxes of 64 channels: 128 bytes a row, whose 16-byte chunks are exclusive-ored with the
/// row, so that one chunk of eight neighbouring rows touches all banks. Byte offset in a box.
__device__ __forceinline__ constexpr std::uint32_t in_box(std::uint32_t row, std::uint32_t chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/// kRows_: of a row group, 16 or 32: one or two tiles of mma.
template <class Element, int kLatent_, int kRows_>
struct Small {
  using T = Element;
  static constexpr int kLatent = kLatent_;
  static constexpr int kRows = kRows_;
  static constexpr int kRowTiles = kRows / 16;
  static constexpr int kLatentBoxes = kLatent / 64;
  static constexpr int kBoxes = kLatentBoxes + 1;          // the last holds the rotary channels and zeros
  static constexpr int kSteps = kBoxes * 4 / kQuarters;    // k-steps of 16 channels of a quarter
  static constexpr int kWarpWidth = kLatent / kMathWarps;  // output channels of a math warp
  static constexpr int kWarpTiles = kWarpWidth / 8;        // output tiles of 8 channels of a math warp
  static constexpr int kMostUnits = kRows == 16 ? 3 : 2;   // of a pass

  static constexpr int kSlots = 5;
  static constexpr int kQueryBox = kRows * 128;
  static constexpr int kUnitBox = kUnit * 128;
  static constexpr int kSlotBytes = kBoxes * kUnitBox;
  static constexpr int kScorePitch = kMostUnits * kUnit + 8;        // floats
  static constexpr int kWeightPitch = kMostUnits * kUnit * 2 + 16;  // bytes, an odd number of chunks

  static constexpr int kRingAt = 0;
  static constexpr int kScoresAt = kRingAt + kSlots * kSlotBytes;
  static constexpr int kWeightsAt = kScoresAt + kQuarters * kRows * kScorePitch * 4;
  static constexpr int kShrinkAt = kWeightsAt + kRows * kWeightPitch;
  static constexpr int kSumsAt = kShrinkAt + kRows * 4;  // (m, l) of the piece's rows
  static constexpr int kBarriersAt = kSumsAt + kRows * 8;
  static constexpr int kBarriers = 2 * kSlots + 2;
  static constexpr int kPiecesAt = kBarriersAt + (kBarriers + 1) / 2 * 16;
  static constexpr int kTodoAt = kPiecesAt + 2 * 128;
  static constexpr int kLengthsAt = kTodoAt + 32;
  static constexpr int kBytes = kLengthsAt + 16;
  static_assert(kBytes <= 232448 && kSlotBytes % 1024 == 0 && kBoxes * kQueryBox <= kSlotBytes);
};

/// A piece as the load warps hand it to the math warps.
struct PostedPiece {
  Piece piece;
  std::int32_t units = 0;
  std::int32_t entries = 0;  // that the CTA's end at
  std::int32_t shift = 0;    // from entry to position behind the list's first run
  bool any = false;          // false: the CTA has no work at all
};
static_assert(sizeof(PostedPiece) <= 128);

/// Where things are in a CTA's shared memory.
template <class Config>
struct Shared {
  std::byte* base;

  __device__ __forceinline__ std::uint32_t at(int offset) const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(base)) + static_cast<std::uint32_t>(offset);
  }
  template <class X>
  __device__ __forceinline__ X* as(int offset) const {
    return reinterpret_cast<X*>(base + offset);
  }
  __device__ __forceinline__ float* scores() const { return as<float>(Config::kScoresAt); }
  __device__ __forceinline__ float* shrink() const { return as<float>(Config::kShrinkAt); }
  __device__ __forceinline__ PostedPiece& posted(std::uint32_t i) const {
    return *as<PostedPiece>(Config::kPiecesAt + static_cast<int>(i & 1) * 128);
  }
  /// Of the request that the CTA belongs to, if it belongs to one.
  __device__ __forceinline__ Lengths& lengths() const { return *as<Lengths>(Config::kLengthsAt); }
  __device__ __forceinline__ std::uint32_t* todo() const { return as<std::uint32_t>(Config::kTodoAt); }

  // Barriers.
  __device__ __forceinline__ std::uint32_t full(std::uint32_t i) const {
    return at(Config::kBarriersAt) + 8 * i;
  }
  __device__ __forceinline__ std::uint32_t empty(std::uint32_t i) const { return full(Config::kSlots + i); }
  /// A piece is posted; its queries are in registers.
  __device__ __forceinline__ std::uint32_t posted_full() const { return full(2 * Config::kSlots); }
  __device__ __forceinline__ std::uint32_t posted_empty() const { return full(2 * Config::kSlots + 1); }
};

}  // namespace mla::MLA_ARCH_NS::latent
