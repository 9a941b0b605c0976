// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "mla/export.h"

namespace mla::text {

/// The text with \xNN for control characters but the line end, and for bytes that are no UTF-8: what a file says
/// moves no cursor.
[[nodiscard]] MLA_EXPORT std::string printable(std::string_view text);

}  // namespace mla::text
