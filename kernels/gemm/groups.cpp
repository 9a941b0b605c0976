// SPDX-License-Identifier: Apache-2.0
#include "gemm/groups.hpp"

#include <algorithm>

namespace mla::kernels::gemm {

std::vector<GroupSizes> group_segments(std::span<const SegmentSizes> segments, std::int64_t most_scores) {
  constexpr std::int32_t kKeyStep = 16;
  std::vector<GroupSizes> groups;
  std::int64_t needed = 0;  // scores of the open group without padding between its segments
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::int32_t queries = std::max(segments[i].queries, 1);
    const std::int32_t keys = (std::max(segments[i].keys, 1) + kKeyStep - 1) / kKeyStep * kKeyStep;
    const std::int64_t own = std::int64_t{queries} * keys;
    if (!groups.empty()) {
      GroupSizes& open = groups.back();
      const std::int32_t wide_queries = std::max(open.queries, queries),
                         wide_keys = std::max(open.keys, keys);
      const std::int64_t padded = std::int64_t{open.count + 1} * wide_queries * wide_keys;
      if (padded <= most_scores && 4 * padded <= 5 * (needed + own)) {
        open.count += 1;
        open.queries = wide_queries;
        open.keys = wide_keys;
        needed += own;
        continue;
      }
    }
    groups.push_back({static_cast<std::int32_t>(i), 1, queries, keys});
    needed = own;
  }
  return groups;
}

}  // namespace mla::kernels::gemm
