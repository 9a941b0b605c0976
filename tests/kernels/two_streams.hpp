// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "verify/run_suite.hpp"

namespace mla::testing {

/// Replays graphs of many calls of the participant's backend on two streams at once, each with a plan and a
/// workspace of its own: together they want more of the GPU than there is, so that parts of one launch wait
/// for multiprocessors that the other one holds. Empty, or a sentence if it does not end or a result has not
/// the bits of a call alone.
[[nodiscard]] std::string run_on_two_streams(const verify::Participant& participant,
                                             const verify::Case& shape);

}  // namespace mla::testing
