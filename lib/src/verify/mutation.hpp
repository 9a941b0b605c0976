// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "verify/mutants.hpp"
#include "verify/run_suite.hpp"
#include "verify/suite.hpp"

/// The verifier on trial: does it kill every mutant, and does it leave ideal kernels alone?
namespace mla::verify {

class Judge;

/// What became of a mutant.
struct MutantVerdict {
  Mutant mutant;
  bool killed = false;
  std::int64_t asked = 0;  ///< oracles and cases until then
  std::string killer;      ///< "oracle count", or the case's text
  std::string reason;
};

struct MutationRun {
  std::vector<MutantVerdict> verdicts;  ///< in the order of the mutants
  std::int64_t killed = 0;
  bool stopped = false;
};

/// Runs the suite's cases, then the oracles, on every mutant until it is killed.
[[nodiscard]] MutationRun run_mutants(std::span<const Mutant> mutants, const Suite& suite,
                                      const RunHooks& hooks);

/// Runs the suite's cases on a mutant by way of a judge, which has to outlive what the mutant does.
[[nodiscard]] MutantVerdict run_mutant(const Mutant& mutant, const Suite& suite, const RunHooks& hooks,
                                       Judge& judge);

/// A false alarm: an ideal kernel that was accused.
struct FalseAlarm {
  std::string profile;
  Case c;
  std::string reason;
};

struct IdealRun {
  std::int64_t seeds = 0, judged = 0;
  double worst_share = 0;  ///< of any budget
  std::vector<FalseAlarm> alarms;
  bool stopped = false;
};

/// Small random cases, one a seed from `first_seed` on, on an ideal kernel of every profile.
[[nodiscard]] IdealRun run_ideal_kernels(std::uint64_t first_seed, std::int64_t seeds, const RunHooks& hooks);

}  // namespace mla::verify
