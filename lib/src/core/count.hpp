// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "mla/error.hpp"
#include "mla/export.h"

/// Whole numbers as people write them: "64", "4k" or "4K" (4096), "1m" or "1M" (1048576), "1e6" (1000000). One grammar for batch texts, flags
/// and specs.
namespace mla::text {

/// Throws Error(code) whose sentence begins with `what`, quotes the text and says what is allowed, unless
/// `text` is a whole number in low..high.
[[nodiscard]] MLA_EXPORT std::int64_t parse_count(
    std::string_view text, std::string_view what, ErrorCode code, std::int64_t low = 0,
    std::int64_t high = std::numeric_limits<std::int64_t>::max());

/// Shortest text that parse_count reads back: 4096 -> "4k". Negative numbers are written plainly.
[[nodiscard]] MLA_EXPORT std::string format_count(std::int64_t value);

}  // namespace mla::text
