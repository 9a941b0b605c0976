// SPDX-License-Identifier: Apache-2.0
#include "mla/version.hpp"

#include "mla_git.inc"

namespace mla {

const BuildInfo& build_info() noexcept {
  static constexpr BuildInfo kInfo{.version = MLA_BUILD_VERSION,
                                   .git = MLA_BUILD_GIT,
                                   .compiler = MLA_BUILD_COMPILER,
                                   .build_type = MLA_BUILD_TYPE,
                                   .cuda = MLA_BUILD_CUDA,
                                   .cuda_archs = MLA_BUILD_CUDA_ARCHS};
  return kInfo;
}

}  // namespace mla
