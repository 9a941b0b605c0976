// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mla {

/// Every .json file of folder `kind` ("gpus", "models") in the config folders, by name. A file hides those of
/// the same name in later folders, so that a user's own description replaces ours.
[[nodiscard]] std::vector<std::filesystem::path> config_files(std::string_view kind);

/// Whether a user who wrote `what` meant a file: it has a path separator, ends in .json, or is there.
[[nodiscard]] bool looks_like_path(std::string_view what);

}  // namespace mla
