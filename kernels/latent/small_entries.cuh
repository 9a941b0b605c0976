// SPDX-License-Identifier: Apache-2.0
// What both kinds of math warps of the small-work kernel share: which keys a pass has, and keys that may hold
// anything.
#pragma once

#include <type_traits>

#include "latent/small_traits.cuh"
#include "ptx/barrier.cuh"

namespace mla::MLA_ARCH_NS::latent {

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

  /// Row `row` of the units from `unit` on, which begins at `from`: chunks first .. first + count - 1.
  __device__ __forceinline__ void clear(std::byte* from, std::int32_t unit, std::uint32_t row,
                                        std::uint32_t first, std::uint32_t count) const {
    constexpr std::uint32_t kExponent = std::is_same_v<typename Config::T, __nv_bfloat16> ? 0x7f80U : 0x7c00U;
    const std::int32_t at = entries_.position(entries_.at(unit, row));
    if (at == Entries::kNone || (earliest_.sees(at) && latest_.sees(at))) return;
    for (std::uint32_t chunk = first; chunk < first + count; ++chunk) {
      auto* words = reinterpret_cast<std::uint32_t*>(from + chunk / 8 * Config::kBoxPitch +
                                                     in_box(row % kOctet, chunk % 8));
      for (int i = 0; i < kLane / 4; ++i) {
        std::uint32_t word = words[i];
        if ((word & kExponent) == kExponent) word &= 0xffff0000U;
        if ((word >> 16 & kExponent) == kExponent) word &= 0x0000ffffU;
        words[i] = word;
      }
    }
  }

 private:
  Entries entries_;
  Sight earliest_, latest_;
};

}  // namespace mla::MLA_ARCH_NS::latent
