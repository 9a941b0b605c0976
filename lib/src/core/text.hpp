// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/export.h"

/// Small text helpers of the library itself (exported for mla_tools, not part of the public headers).
namespace mla::text {

/// The candidate nearest to `word` by edit distance (at most max(1, a third of its length)), or empty.
[[nodiscard]] MLA_EXPORT std::string nearest(std::string_view word, std::span<const std::string> candidates);
/// "a, b or c".
[[nodiscard]] MLA_EXPORT std::string join_or(std::span<const std::string> words);
/// "did you mean 'x'?" or, when nothing is near, "one of: a, b, c".
[[nodiscard]] MLA_EXPORT std::string suggestion(std::string_view word,
                                                std::span<const std::string> candidates);
[[nodiscard]] MLA_EXPORT std::vector<std::string> split(std::string_view text, char separator);
[[nodiscard]] MLA_EXPORT std::string to_lower(std::string_view text);
/// 'text' for a message: in single quotes, cut after 60 bytes, control bytes as \x1b, so that no input can
/// flood or repaint a terminal.
[[nodiscard]] MLA_EXPORT std::string quoted(std::string_view text);
/// 1234567 -> "1,234,567".
[[nodiscard]] MLA_EXPORT std::string with_thousands(std::int64_t value);

}  // namespace mla::text
