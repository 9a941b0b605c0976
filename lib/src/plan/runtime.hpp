// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// Memory beside weights and cache on one rank.
struct RuntimeBytes {
  std::int64_t activations = 0, graphs = 0, other = 0;
  std::vector<Line> lines;
};

/// What the request gives, and for the rest an estimate by stated assumptions: the peak of a profiling run
/// with max_batched_tokens tokens, captured graphs, and what driver and communication libraries hold.
[[nodiscard]] RuntimeBytes runtime_bytes(const ModelConfig& model, const PlanRequest& request);

}  // namespace mla::capacity
