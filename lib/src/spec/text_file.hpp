// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace mla::spec {

/// The whole of a regular file. Throws kIo naming it where it is missing, no file or cannot be read.
[[nodiscard]] std::string read_text_file(const std::string& path);

}  // namespace mla::spec
