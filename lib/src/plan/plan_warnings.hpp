// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// Those that hold in every layout: what was guessed about the model, what its engine makes of it and of the formats.
[[nodiscard]] MLA_EXPORT std::vector<std::string> setting_warnings(const ModelConfig& model,
                                                                   const PlanRequest& request);

/// All of them and the rules of engine, layout and model that a plan touches, as sentences for the user; the most costly first.
[[nodiscard]] std::vector<std::string> plan_warnings(const ModelConfig& model, const PlanRequest& request,
                                                     const MemoryPlan& plan);

}  // namespace mla::capacity
