// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/lengths.hpp"

namespace mla::spec {

/// A trace: one request a line, as two numbers (prompt, output; separated by comma, blank or tab), or as a
/// JSON object with prompt_len / input_len / prompt_tokens / input_tokens / input_length / ContextTokens /
/// num_prefill_tokens and output_len / output_tokens / completion_tokens / output_length / GeneratedTokens /
/// num_decode_tokens; or the whole file as a JSON array of such objects or of pairs. A first line of words is a
/// heading and may say which columns hold them. Empty lines and lines that start with # are skipped. Throws kParse
/// naming the line (of an array: the request).
[[nodiscard]] std::vector<capacity::RequestLengths> parse_lengths(std::string_view text,
                                                                  std::string_view origin);

}  // namespace mla::spec
