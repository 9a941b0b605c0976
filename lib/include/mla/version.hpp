// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "mla/export.h"

namespace mla {

struct BuildInfo {
  std::string_view version;   ///< "0.1.0"
  std::string_view git;       ///< short sha, "+dirty" appended; "unknown" outside git
  std::string_view compiler;  ///< "GNU 12.2.0"
  std::string_view build_type;
  std::string_view cuda;        ///< toolkit version or "none"
  std::string_view cuda_archs;  ///< "80;90a" or ""
};
[[nodiscard]] MLA_EXPORT const BuildInfo& build_info() noexcept;

}  // namespace mla
