// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/pools.hpp"

/// What every rank of a layout holds: the arithmetic of a plan.
namespace mla::capacity {

struct Stage {
  StagePlan plan;
  PoolSet pools;
};

/// Throws kInvalidArgument naming the value of the request that is out of range.
void check(const PlanRequest& request);

/// Whole bytes of `part` of them.
[[nodiscard]] std::int64_t share_of(double part, std::int64_t whole);

enum class Words : bool { kNone, kAll };  ///< whether weights and runtime come with their lines

/// One entry a pipeline stage, pools filled for the request's context. `request` is completed(), `inputs` its
/// pool_inputs().
[[nodiscard]] std::vector<Stage> plan_stages(const ModelConfig& model, const PlanRequest& request,
                                             const PoolInputs& inputs, Words words = Words::kAll);

/// Index of the stage that holds the fewest sequences over all its pools (of equal ones: the one with the fewest
/// blocks). It decides, as every sequence needs every stage.
[[nodiscard]] std::size_t limiting_stage(const std::vector<Stage>& stages);

/// Longest single sequence that all stages hold, at most `limit` tokens.
[[nodiscard]] std::int64_t longest_of(const PoolInputs& inputs, const std::vector<Stage>& stages,
                                      std::int64_t limit);

}  // namespace mla::capacity
