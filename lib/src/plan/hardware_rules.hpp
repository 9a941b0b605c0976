// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// Sentences on formats and blocks for which this GPU has no kernels, or only ones that unpack; none for a GPU that is not
/// described.
[[nodiscard]] MLA_EXPORT std::vector<std::string> hardware_cautions(const ModelConfig& model,
                                                                    const PlanRequest& request);

/// Why the engine would not start with this cache format on this GPU: the one of those sentences that says so. Empty if it
/// starts, for a GPU that is not described and without an engine.
[[nodiscard]] MLA_EXPORT std::string hardware_refusal(const ModelConfig& model, const PlanRequest& request);

}  // namespace mla::capacity
