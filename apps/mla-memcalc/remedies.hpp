// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "mla/capacity.hpp"
#include "request.hpp"

namespace mla::memcalc {

/// "64 sequences fit with:  --cache fp8  |  --gpus 16 (DP16+EP16)": changes of one flag (or two) after which the plan holds
/// what is wanted, each of them tried. `solved_for` ("context", "gpus", ...) is not offered. Empty: the plan fits, or nothing
/// of it helps.
[[nodiscard]] std::string remedies(const Question& question, const capacity::MemoryPlan& plan,
                                   std::string_view solved_for = {});

}  // namespace mla::memcalc
