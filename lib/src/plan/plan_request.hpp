// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "mla/capacity.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {

/// Whether validate() accepts the layout for this model in this engine.
[[nodiscard]] bool possible(const Layout& layout, const ModelConfig& model, const EngineRules& engine);

/// The request with everything that was left to a default filled in.
[[nodiscard]] PlanRequest completed(const ModelConfig& model, PlanRequest request);

/// How many sequences a replica runs at once, whatever it holds, and what says so.
struct BatchLimit {
  std::int64_t sequences = 0;
  std::string_view name{};  ///< "--max-seqs"
};
[[nodiscard]] MLA_EXPORT BatchLimit batch_limit(const PlanRequest& request);

/// Of the sequences that a replica holds, those its engine runs at the same time.
[[nodiscard]] std::int64_t run_at_once(const PlanRequest& request, std::int64_t sequences);

/// Where the search for a longest sequence ends: at the model's maximum, without one at the context asked about.
[[nodiscard]] std::int64_t longest_asked(const ModelConfig& model, const PlanRequest& request);

/// What decides the pools; model and request must outlive it.
[[nodiscard]] PoolInputs pool_inputs(const ModelConfig& model, const PlanRequest& request);

}  // namespace mla::capacity
