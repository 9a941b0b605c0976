// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mla/capacity.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {

/// Memory beside weights and cache on one rank.
struct RuntimeBytes {
  std::int64_t activations = 0, graphs = 0, other = 0;
  std::vector<Line> lines;
};

/// What the request gives, and for the rest an estimate by the engine's RuntimeRule and stated assumptions, for
/// sequences of request.context tokens.
[[nodiscard]] RuntimeBytes runtime_bytes(const ModelConfig& model, const PlanRequest& request);

/// The part of it that grows with the context; nothing where the activations or the cache's budget are given.
[[nodiscard]] Scratch scratch_of(const ModelConfig& model, const PlanRequest& request);

}  // namespace mla::capacity
