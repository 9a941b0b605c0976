// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mla/capacity.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {

/// The model with only the cache layers of one pipeline stage (prediction modules belong to the last).
[[nodiscard]] ModelConfig model_of_stage(const ModelConfig& model, const Layout& layout, int stage);

/// Bytes a token adds on one rank, rows shared over dcp ranks.
[[nodiscard]] double growing_bytes(const CacheCost& cost, const EngineRules& engine, const Layout& layout);

/// Every number of a plan with its arithmetic, in reading order, for a rank of the limiting stage; `cost` is
/// that rank's.
[[nodiscard]] std::vector<Line> plan_lines(const PlanRequest& request, const PoolInputs& inputs,
                                           const MemoryPlan& plan, const CacheCost& cost);

}  // namespace mla::capacity
