// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/cases.hpp"

namespace mla::spec {

/// Reads a file of cases: a JSON array, each with "id", "model", "config", "engine", "inputs", "expected",
/// "tolerance" (configs/schema/cases.schema.json). "config" is either the short form of the schema or a
/// Hugging Face config. Throws kParse naming case and key for malformed JSON, wrong types and missing parts.
/// Inputs that no quantity uses are listed in the case's notes.
[[nodiscard]] std::vector<capacity::CapacityCase> parse_cases(std::string_view json_text,
                                                              std::string_view origin);

/// A path, or "-" for `stdin_text`.
[[nodiscard]] std::vector<capacity::CapacityCase> load_cases(const std::string& what,
                                                             std::string_view stdin_text = {});

}  // namespace mla::spec
