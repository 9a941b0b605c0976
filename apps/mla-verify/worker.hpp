// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verify/judge.hpp"

namespace mla::verify_app {

/// Adds the backends of shared objects, in their order.
void load_plugins(const std::vector<std::string>& files);

/// Backends and the command lines of peers as one list of names. With peers, "all" backends are none.
[[nodiscard]] std::string participant_names(const std::string& backends,
                                            const std::vector<std::string>& peers);

/// A judge whose process is this program with the same backends. `threads`: of the reference, 0: all.
[[nodiscard]] std::unique_ptr<verify::Judge> make_isolated_judge(const std::string& backends,
                                                                 const std::vector<std::string>& plugins,
                                                                 double timeout, int threads = 0);

}  // namespace mla::verify_app
