// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {

/// One cache tensor that an engine registers: a layer's row, heads, index keys or state.
struct CacheSpec {
  GroupKind kind = GroupKind::kFull;
  int stage = 0;
  std::int64_t block = 0;       ///< tokens a page
  std::int64_t page_bytes = 0;  ///< without what makes pages equal
  std::int64_t window = 0;
  bool chunked = false;
};

/// One pool of equal blocks for layers of several kinds, as vLLM's hybrid manager builds it: pages are made
/// equal by raising block sizes (and padding states), layers of a kind are dealt into groups of equal size,
/// one block table a group. The groups are those of the whole model; only their layers on `stage` cost bytes
/// there.
[[nodiscard]] CachePool grouped_pool(std::vector<CacheSpec> specs, const PoolInputs& inputs, int stage,
                                     PoolSet& set);

/// The same for DeepSeek-V4 on vLLM, whose layers keep pages of several sizes: a block has places for pages
/// of each size, and each group fills those it needs. Published for V4-Flash: places for 22 layers, five
/// groups.
[[nodiscard]] CachePool entry_pool(const std::vector<CacheSpec>& specs, const PoolInputs& inputs, int stage);

}  // namespace mla::capacity
