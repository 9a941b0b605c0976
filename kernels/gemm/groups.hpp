// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mla/shape.hpp"

namespace mla::kernels::gemm {

/// Consecutive segments that share one batched product, padded to the longest of them.
struct GroupSizes {
  std::int32_t first = 0, count = 0;
  std::int32_t queries = 0, keys = 0;
};

/// Sizes of one segment, upper bounds.
struct SegmentSizes {
  std::int32_t queries = 0, keys = 0;
};

/// Cuts a ragged batch into groups in order: a segment joins the group before it as long as padding makes the
/// scores at most a quarter larger and they stay within `most_scores` elements a head. Keys are rounded up to
/// a multiple of 16.
[[nodiscard]] std::vector<GroupSizes> group_segments(std::span<const SegmentSizes> segments,
                                                     std::int64_t most_scores);

}  // namespace mla::kernels::gemm
