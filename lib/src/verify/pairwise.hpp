// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace mla::verify {

/// A level of one axis together with a level of another.
struct LevelPair {
  std::size_t axis_a, axis_b;  ///< a < b
  int level_a, level_b;
};

/// Rows of a design in which every pair of levels of any two axes stands in some row, as far as `allowed`
/// permits.
struct PairwiseDesign {
  std::vector<std::vector<int>> rows;  ///< [row][axis] = level
  std::int64_t pairs = 0;              ///< pairs there are
  std::int64_t covered = 0;            ///< of them in some row
  std::vector<LevelPair> open;         ///< those in none
};

/// levels[a] = number of levels of axis a, each >= 1. Greedy; the same rows for the same arguments.
[[nodiscard]] PairwiseDesign pairwise(std::span<const int> levels,
                                      const std::function<bool(std::span<const int>)>& allowed,
                                      std::uint64_t seed);

}  // namespace mla::verify
