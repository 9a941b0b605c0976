// SPDX-License-Identifier: Apache-2.0
// What both kinds of math warps of the small-work kernel share: which keys a pass has, and keys that may hold
// anything.
#pragma once

#include <type_traits>

#include "latent/small_traits.cuh"
#include "ptx/barrier.cuh"

namespace mla::MLA_ARCH_NS::latent {

inline constexpr unsigned kEveryLane = 0xffffffffU;

/// A barrier among the math warps.
__device__ __forceinline__ void sync_math() {
  ptx::bar_sync<1, kMathThreads>();
}

/// Four numbers of a row of the output: of two channels, and of the two that are eight behind them.
struct Four {
  std::uint32_t row, channel;
};

/// Which entry of a piece's list a row of a unit is, and its position.
struct Entries {
  static constexpr std::int32_t kNone = 0x7fffffff;
  std::int32_t base, stride, end, first_end, shift;

  __device__ __forceinline__ explicit Entries(const PostedPiece& posted)
      : base(posted.piece.base),
        stride(posted.piece.stride),
        end(posted.entries),
        first_end(posted.piece.rows.runs.first_end),
        shift(posted.shift) {}
  /// `row` may be one of the units behind.
  [[nodiscard]] __device__ __forceinline__ std::int32_t at(std::int32_t unit, std::uint32_t row) const {
    return (base + (unit + static_cast<std::int32_t>(row / kUnit)) * stride) * kUnit +
           static_cast<std::int32_t>(row % kUnit);
  }
  /// kNone, which no row sees, behind the CTA's last entry.
  [[nodiscard]] __device__ __forceinline__ std::int32_t position(std::int32_t entry) const {
    if (entry >= end) return kNone;
    return entry < first_end ? entry : entry + shift;
  }
};

/// Keys that some rows of the group see and others do not: their weight is 0 in the latter, but 0 times an
/// infinity or a NaN is NaN. What is not finite in them is cleared before it is multiplied; the rows that do
/// see them have a score, and so a weight, that is not finite either.
template <class Config>
class Unshared {
 public:
  __device__ __forceinline__ Unshared(const Params& p, const PostedPiece& posted) : entries_(posted) {
    const RowGroup& group = posted.piece.rows;
    const auto first_row = static_cast<std::int32_t>(blockIdx.y * Config::kRows);
    const std::int32_t last_row = min(first_row + Config::kRows, group.queries * p.attention.num_heads) - 1;
    earliest_ = Sight(p, group, first_row);
    latest_ = Sight(p, group, last_row);
  }
  /// Entries before this one are seen by all rows.
  static __device__ __forceinline__ std::int32_t first(const Params& p, const PostedPiece& posted) {
    if (p.attention.causal && p.attention.window > 0) return 0;
    const auto first_row = static_cast<std::int32_t>(blockIdx.y * Config::kRows);
    return min(posted.entries, Sight(p, posted.piece.rows, first_row).last + 1);
  }
  /// False: there are no such keys.
  static __device__ __forceinline__ bool possible(const Params& p, const PostedPiece& posted) {
    const RowGroup& group = posted.piece.rows;
    const auto first_row = static_cast<std::int32_t>(blockIdx.y * Config::kRows);
    const std::int32_t last_row = min(first_row + Config::kRows, group.queries * p.attention.num_heads) - 1;
    return p.attention.causal && p.by_heads.quotient(first_row) != p.by_heads.quotient(max(last_row, 0));
  }

  /// A unit's rows, by a warp: kChunks chunks from `first` on. There are few such rows, so that lanes share
  /// the 128 bytes that each has in a box.
  template <int kChunks>
  __device__ __forceinline__ void clear(std::byte* from, std::int32_t unit, std::uint32_t lane,
                                        std::uint32_t first) const {
    static_assert(kUnit == 32 && (kChunks % 8 == 0 || 8 % kChunks == 0));
    const std::int32_t at = entries_.position(entries_.at(unit, lane));
    const bool some = at != Entries::kNone && !(earliest_.sees(at) && latest_.sees(at));
    from += first / 8 * Config::kBoxPitch;
#pragma unroll 1
    for (std::uint32_t rows = __ballot_sync(kEveryLane, some); rows != 0; rows &= rows - 1) {
      const auto row = static_cast<std::uint32_t>(__ffs(static_cast<int>(rows))) - 1;
      if (kChunks < 8 && lane / 4 / kChunks != first % 8 / kChunks) continue;
      auto* const word = reinterpret_cast<std::uint32_t*>(from + row / kOctet * Config::kOctetPitch +
                                                          in_box(row % kOctet, lane / 4) + lane % 4 * 4);
#pragma unroll
      for (int box = 0; box * 8 < kChunks; ++box) {
        word[box * (Config::kBoxPitch / 4)] = finite(word[box * (Config::kBoxPitch / 4)]);
      }
    }
  }

 private:
  /// Zeros for what is not.
  static __device__ __forceinline__ std::uint32_t finite(std::uint32_t word) {
    constexpr std::uint32_t kExponent = std::is_same_v<typename Config::T, __nv_bfloat16> ? 0x7f80U : 0x7c00U;
    if ((word & kExponent) == kExponent) word &= 0xffff0000U;
    if ((word >> 16 & kExponent) == kExponent) word &= 0x0000ffffU;
    return word;
  }

  Entries entries_;
  Sight earliest_, latest_;
};

}  // namespace mla::MLA_ARCH_NS::latent
