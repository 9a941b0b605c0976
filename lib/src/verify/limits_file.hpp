// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "mla/numerics.hpp"

namespace mla::verify {

/// Reads verify/limits.json's text. Throws kParse naming `origin` and the key that is missing, unknown or out
/// of range.
[[nodiscard]] Limits parse_limits(std::string_view json, std::string_view origin);

/// The constants of judgement: verify/limits.json of the first config folder that has one, read once. Throws
/// kIo if no folder has it: nothing is judged by constants that nobody can look up.
[[nodiscard]] const Limits& active_limits();

}  // namespace mla::verify
