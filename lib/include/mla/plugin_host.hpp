// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "mla/backend.hpp"
#include "mla/export.h"

namespace mla {

/// Loads a backend from a shared object that speaks mla/plugin.h and adds it behind all others: backends()
/// shows it from then on. It stays loaded. Call this before other threads look for backends. Throws kIo if
/// the file cannot be loaded, kInvalidArgument naming what is wrong with it: no mla_plugin_query, another
/// ABI, a missing function, a name that is malformed or taken, an unknown element type.
MLA_EXPORT const Backend& load_plugin(const std::filesystem::path& file);

/// Where a backend comes from: empty for those of this build, else e.g. "plug-in 0.3 (libx.so)".
[[nodiscard]] MLA_EXPORT std::string origin_of(const Backend& backend);

}  // namespace mla
