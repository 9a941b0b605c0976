// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mla/capacity.hpp"

namespace mla::capacity {

/// Whether the engine keeps this model's compressed entries in fp8 alone, whatever "auto" means elsewhere.
[[nodiscard]] MLA_EXPORT bool only_fp8_entries(const ModelConfig& model, const EngineRules& engine) noexcept;

}  // namespace mla::capacity
