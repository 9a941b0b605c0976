// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "mla/export.h"

namespace mla {

/// A configuration file larger than this is no configuration file.
inline constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 20;

/// The whole file. Throws kIo naming the path: absent, a directory, unreadable; kParse when larger than 64
/// MiB.
[[nodiscard]] MLA_EXPORT std::string read_text_file(const std::filesystem::path& path);

}  // namespace mla
