// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "request.hpp"

namespace mla::memcalc {

/// Flags that were given and change nothing for this model, engine and each other, as sentences.
[[nodiscard]] std::vector<std::string> idle_flags(const RequestOptions& options, const Question& question);

}  // namespace mla::memcalc
