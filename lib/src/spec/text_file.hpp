// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace mla::spec {

/// Logs, traces and the like are refused beyond this, so that no device or pipe without an end fills the memory.
inline constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20;

/// The whole file. Throws kIo naming the path if it is missing, a folder, unreadable or larger than kMaxTextBytes.
[[nodiscard]] std::string read_text_file(const std::string& path);

}  // namespace mla::spec
