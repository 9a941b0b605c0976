// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace mla::kernels::splitkv {

/// What the choice of the number of parts depends on; no CUDA in here.
struct Work {
  std::span<const std::int64_t> tiles;  ///< of each unit (request or token), at least 1
  std::int64_t row_groups = 1;          ///< blocks that every part has
  std::int64_t slots = 132;             ///< blocks that run at the same time
  std::int64_t least_tiles = 3;         ///< of a part, where units are few
};

/// Parts along the keys when all keys are dealt out evenly.
///
/// Many units: as many parts as fit side by side, or slightly fewer (down to 9/10) if then no equal unit is
/// cut. Few units: every unit the same number of parts, as many as fit, but none of under `least_tiles`
/// tiles: a part costs a partial result and its share of the merge, and beyond that many parts the merge
/// takes longer than the keys.
[[nodiscard]] std::int64_t choose_parts(const Work& work);

/// About a hundred keys: at least 2 tiles.
[[nodiscard]] constexpr std::int64_t least_tiles(std::int64_t tile) noexcept {
  return tile >= 64 ? 2 : 3;
}

/// Blocks side by side on a multiprocessor, and stages of each one's ring.
struct Ring {
  int blocks = 0;  ///< 0: not even one block fits
  int stages = 0;
};
/// As many blocks (at most `blocks`) as fit with 2 stages each, then as many stages (at most `most`) as fit
/// beside each other. `limit`: shared memory that one block may have, which is all of the multiprocessor's
/// but the 1 KiB that every block costs beside its own.
[[nodiscard]] Ring choose_ring(std::int64_t fixed_bytes, std::int64_t stage_bytes, std::int64_t limit,
                               int blocks, int most);

}  // namespace mla::kernels::splitkv
