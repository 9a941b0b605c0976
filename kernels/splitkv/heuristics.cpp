// SPDX-License-Identifier: Apache-2.0
#include "splitkv/heuristics.hpp"

#include <algorithm>
#include <numeric>

namespace mla::kernels::splitkv {

std::int64_t choose_parts(const Work& work) {
  const auto units = static_cast<std::int64_t>(work.tiles.size());
  if (units == 0) return 1;
  const std::int64_t total = std::accumulate(work.tiles.begin(), work.tiles.end(), std::int64_t{0});
  const auto [least, most] = std::minmax_element(work.tiles.begin(), work.tiles.end());
  const std::int64_t room = std::max<std::int64_t>(1, work.slots / work.row_groups);
  const std::int64_t useful = std::max<std::int64_t>(1, total / work.least_tiles);
  if (*least != *most) return std::max(std::min(room, useful), std::int64_t{1});
  if (units >= room) {
    for (std::int64_t parts = room; parts * 10 >= room * 9; --parts) {
      if (units % parts == 0) return parts;
    }
    return std::min(room, useful);
  }
  const std::int64_t each = std::min(room / units, std::max<std::int64_t>(1, *most / work.least_tiles));
  return units * each;
}

Ring choose_ring(std::int64_t fixed_bytes, std::int64_t stage_bytes, std::int64_t limit, int blocks,
                 int most) {
  constexpr std::int64_t kReserved = 1024;
  for (; blocks > 0; --blocks) {
    const std::int64_t share = (limit + kReserved) / blocks - kReserved;
    const std::int64_t fit = (share - fixed_bytes) / stage_bytes;
    if (fit >= 2) return {blocks, static_cast<int>(std::min<std::int64_t>(fit, most))};
  }
  return {};
}

}  // namespace mla::kernels::splitkv
