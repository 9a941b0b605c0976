// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// A layout as written, before it meets a model.
struct LayoutText {
  Layout layout;
  bool ep_given = false;
};

/// Inverse of to_text: "TP8", "DP8+EP8", "PP2xTP4", "TP8+DCP8"; in any case, parts in any order, joined by x or +. Throws
/// kInvalidArgument naming the part.
[[nodiscard]] MLA_EXPORT LayoutText parse_layout(std::string_view text);

/// Of this model: without an ep routed experts are spread whole wherever there are replicas (default_expert_ranks). Throws
/// kInvalidArgument naming the rule that the layout breaks.
[[nodiscard]] MLA_EXPORT Layout layout_for(const LayoutText& text, const ModelConfig& model);

}  // namespace mla::capacity
