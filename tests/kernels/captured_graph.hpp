// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "verify/run_suite.hpp"

namespace mla::testing {

/// Captures one call of the participant's backend on `shape` in a CUDA graph and replays it after changing
/// seq_lens on the device (shorter, empty, back again). Gives a sentence for every replay that is not what
/// the fp64 reference says of those lengths, or not the bits of an uncaptured call.
[[nodiscard]] std::vector<std::string> replay_with_other_lengths(const verify::Participant& participant,
                                                                 const verify::Case& shape);

}  // namespace mla::testing
