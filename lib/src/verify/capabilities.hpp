// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "verify/judge.hpp"
#include "verify/run_suite.hpp"

namespace mla::verify {

/// One thing a backend was asked about: what it says, and what came of trying it.
struct Capability {
  std::string backend;
  std::string aspect;  ///< "heads"
  std::string level;   ///< "65"
  bool claimed = false;
  bool true_claim = false;  ///< claimed: the case passes; not claimed: plan() refuses, too
  std::string detail;       ///< its refusal, or why the claim is false
  Case c;                   ///< what was tried
};

struct CapabilityRun {
  std::vector<Capability> list;
  std::int64_t untrue = 0;
  bool stopped = false;
};

/// Asks every participant about heads, widths, spaces, types, block sizes, query lengths, masks, indexes,
/// splits and memory, tries each answer, and puts its claim of batch invariance and equal bits to the
/// oracles. What a backend refuses must be refused by plan(), too, with a sentence.
[[nodiscard]] CapabilityRun run_capabilities(std::span<const Participant> participants, std::uint64_t seed,
                                             const RunHooks& hooks, Judge& judge);

}  // namespace mla::verify
