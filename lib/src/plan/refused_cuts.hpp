// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// Matrices that the layout would cut where engines cannot: into unequal parts, or inside a block of weights
/// that share a scale. One sentence each.
[[nodiscard]] MLA_EXPORT std::vector<std::string> refused_cuts(const ModelConfig& model,
                                                               const PlanRequest& request,
                                                               const Layout& layout);

}  // namespace mla::capacity
