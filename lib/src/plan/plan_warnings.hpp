// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// The rules of engine, layout and model that a plan touches, as sentences for the user; the most costly
/// first.
[[nodiscard]] std::vector<std::string> plan_warnings(const ModelConfig& model, const PlanRequest& request,
                                                     const MemoryPlan& plan);

}  // namespace mla::capacity
