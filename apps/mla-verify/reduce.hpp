// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "commands.hpp"
#include "verify/judge.hpp"
#include "view.hpp"

namespace mla::verify_app {

/// Reduces the worst failure of each backend and writes it to a file.
[[nodiscard]] std::vector<WrittenRepro> reduce_failures(const RunRequest& request,
                                                        const verify::Participants& participants,
                                                        const RunResult& result, verify::Judge& judge);

}  // namespace mla::verify_app
