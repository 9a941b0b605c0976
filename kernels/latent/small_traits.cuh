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
inline constexpr int kUnit = kGroup;  // entries of a slot of the ring
inline constexpr int kOctet = 8;      // of them that one load warp copies, and that lie together
static_assert(kUnit == kLoadWarps * kOctet);
inline constexpr int kLane = 16;  // bytes that a copy or a row of ldmatrix moves

/// 16-bit rows lie in boxes of 64 channels: 128 bytes a row, whose 16-byte chunks are exclusive-ored with the
/// row, so that one chunk of eight neighbouring rows touches all banks. Byte offset in a box.
__device__ __forceinline__ constexpr std::uint32_t in_box(std::uint32_t row, std::uint32_t chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/// kRows_: of a row group. 16: warps multiply (small_narrow.cuh). 32: warpgroups do (small_wide.cuh).
template <class Element, int kLatent_, int kRows_>
struct Small {
  using T = Element;
  static constexpr int kLatent = kLatent_;
  static constexpr int kRows = kRows_;
  static constexpr bool kWide = kRows == 32;
  static_assert(kWide || kRows == 16);
  static constexpr int kLatentBoxes = kLatent / 64;
  static constexpr int kBoxes = kLatentBoxes + 1;  // the last holds the rotary channels and zeros

  static constexpr int kSlots = 4;
  static constexpr int kQueryBox = kRows * 128;
  static constexpr int kQueryBytes = kBoxes * kQueryBox;
  static constexpr int kSlotBytes = kBoxes * kUnit * 128;
  // Of a slot: octets of entries, each box after box, so that the copy engine fetches a slot at once and
  // those of two slots side by side are equally far apart.
  static constexpr int kBoxPitch = kOctet * 128;
  static constexpr int kOctetPitch = kBoxes * kBoxPitch;

  /// A piece's units are made up to passes of so many.
  static constexpr int kPassUnits = kWide ? 2 : 1;

  // Narrow.
  static constexpr int kQuarters = 4;                               // of the channels of a score
  static constexpr int kMostUnits = 3;                              // of a pass
  static constexpr int kScorePitch = kMostUnits * kUnit + 8;        // floats
  static constexpr int kWeightPitch = kMostUnits * kUnit * 2 + 16;  // bytes, an odd number of chunks

  static constexpr int kRingAt = 0;
  /// Of queries. Wide: two buffers, for this piece and the next. Narrow: slots of the ring.
  static constexpr int kQueriesAt = kRingAt + kSlots * kSlotBytes;
  static constexpr int kScoresAt = kQueriesAt + (kWide ? 2 * kQueryBytes : 0);
  /// Wide: half the sums of 64 entries. Between pieces: what the merge adds up.
  static constexpr int kScoreBytes =
      kWide ? kPassUnits * kUnit * kRows * 4 : kQuarters * kRows * kScorePitch * 4;
  static constexpr int kWeightsAt = kScoresAt + kScoreBytes;
  static constexpr int kMaximaAt = kWeightsAt + (kWide ? 0 : kRows * kWeightPitch);
  static constexpr int kShrinkAt = kMaximaAt + (kWide ? kMathWarps * 16 * 4 : 0);
  static constexpr int kSumsAt = kShrinkAt + kRows * 4;  // (m, l) of the piece's rows
  static constexpr int kBarriersAt = kSumsAt + kRows * 8;
  static constexpr int kBarriers = 2 * kSlots + 2 + (kWide ? 2 : 0);
  static constexpr int kPiecesAt = kBarriersAt + (kBarriers + 1) / 2 * 16;
  static constexpr int kTodoAt = kPiecesAt + 2 * 128;
  static constexpr int kLengthsAt = kTodoAt + 32;
  static constexpr int kBytes = kLengthsAt + 16;
  static_assert(kBytes <= 232448 && kSlotBytes % 1024 == 0 && (kWide || kQueryBytes <= kSlotBytes));
  static_assert(kScoreBytes >= kMathThreads * 24);
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
  /// A piece is posted; it is taken: narrow, its queries are in registers; wide, the piece before is done.
  __device__ __forceinline__ std::uint32_t posted_full() const { return full(2 * Config::kSlots); }
  __device__ __forceinline__ std::uint32_t posted_empty() const { return full(2 * Config::kSlots + 1); }

  /// Queries number i: a slot of the ring, or a buffer of their own.
  __device__ __forceinline__ std::uint32_t queries(std::uint32_t i) const {
    return Config::kWide ? at(Config::kQueriesAt) + i * Config::kQueryBytes
                         : at(Config::kRingAt) + i * Config::kSlotBytes;
  }
  __device__ __forceinline__ std::uint32_t queries_full(std::uint32_t i) const {
    return full(Config::kWide ? 2 * Config::kSlots + 2 + i : i);
  }
};

}  // namespace mla::MLA_ARCH_NS::latent
