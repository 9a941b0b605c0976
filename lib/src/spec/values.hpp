// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The value grammar of flags and specs; nothing in it needs quoting in bash or zsh.
namespace mla::spec {

/// "64", "4k" (4096), "1m" (1048576). Throws kInvalidArgument naming the text and the allowed suffixes; out of range,
/// negative, fractional or empty text is an error.
[[nodiscard]] std::int64_t parse_count(std::string_view text, std::string_view what);

/// "1,2,4", "16..128:16" (step), "1k..64k:x2" (factor), mixed by commas. At most 100000 values.
[[nodiscard]] std::vector<std::int64_t> parse_count_list(std::string_view text, std::string_view what);

/// "80GiB", "141GB", "512MiB", "1.5TB", "1024B"; a bare number is refused (GiB or GB?). Bytes.
[[nodiscard]] std::int64_t parse_size(std::string_view text, std::string_view what);

/// "a,b,c" without empty items.
[[nodiscard]] std::vector<std::string> parse_words(std::string_view text, std::string_view what);

}  // namespace mla::spec
