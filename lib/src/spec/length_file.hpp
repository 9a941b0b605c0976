// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/lengths.hpp"

namespace mla::spec {

/// A trace: one request a line, as two numbers (prompt, output; separated by comma, blank or tab), or as a
/// JSON object with prompt_len / input_len / prompt_tokens / input_tokens / ContextTokens and output_len /
/// output_tokens / GeneratedTokens. A first line of words is a heading and may say which columns hold them.
/// Empty lines and lines that start with # are skipped. Throws kParse naming the line.
[[nodiscard]] std::vector<capacity::RequestLengths> parse_lengths(std::string_view text,
                                                                  std::string_view origin);

}  // namespace mla::spec
