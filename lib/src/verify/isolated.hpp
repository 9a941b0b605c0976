// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "verify/run_suite.hpp"

namespace mla::verify {

/// Judges a case in a process of its own (`mla-verify run --case ...`): a crash of the backend is a failure with the
/// signal's name, and so is no answer within `timeout` seconds.
[[nodiscard]] Verdict judge_isolated(const std::string& program, const std::string& backend, const Case& c,
                                     double timeout);

}  // namespace mla::verify
