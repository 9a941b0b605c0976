// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/run_suite.hpp"

/// Checks that need no tolerance, or only that of the case: crafted inputs whose right answer is known
/// without a reference, and changes of a problem that must not change its answer.
namespace mla::verify {

class Judge;

/// A backend and the shape on which an oracle is asked.
struct OracleSubject {
  const Backend* backend = nullptr;
  Machine machine;
  Case base;  ///< ragged batch with an empty request; oracles vary it
  int repeats = 50;
};

struct OracleOutcome {
  Outcome outcome = Outcome::kPassed;
  std::string reason;  ///< of a pass: what was found out beside
  Failure failure = Failure::kNone;
  [[nodiscard]] static OracleOutcome passed(std::string remark = {}) {
    return {Outcome::kPassed, std::move(remark), Failure::kNone};
  }
  [[nodiscard]] static OracleOutcome failed(std::string why) {
    return {Outcome::kFailed, std::move(why), Failure::kError};
  }
  [[nodiscard]] static OracleOutcome not_for(std::string why) {
    return {Outcome::kUnsupported, std::move(why), Failure::kNone};
  }
};

struct Oracle {
  std::string_view name;
  std::string_view expectation;  ///< one line
  OracleOutcome (*check)(const OracleSubject& subject);
};

/// All of them, by name unique.
[[nodiscard]] std::span<const Oracle> all_oracles();
/// Throws kInvalidArgument with a suggestion.
[[nodiscard]] const Oracle& get_oracle(std::string_view name);
/// Asks one; what the backend throws is the answer.
[[nodiscard]] OracleOutcome ask_oracle(const Oracle& oracle, const OracleSubject& subject);

struct OracleOptions {
  std::uint64_t seed = 1;
  int repeats = 0;           ///< as for repeats_for()
  bool every_format = true;  ///< false: only the first cache format that a backend takes in each query space
  Shard shard{};
};

/// Runs of one call that must agree bit by bit: as many as asked for, or, where that is 0, 50 on a device, whose
/// thousands of threads meet in another order each time, and 20 on a host.
[[nodiscard]] int repeats_for(const Backend& backend, int asked) noexcept;

/// The shapes on which a backend is asked: the smallest it supports for each query space, phase and cache
/// format.
[[nodiscard]] std::vector<Case> oracle_shapes(const Participant& participant, const OracleOptions& options);

struct OracleVerdict {
  std::string_view oracle, expectation;
  std::string backend;
  Case base;
  OracleOutcome outcome;
};

struct OracleRun {
  std::vector<OracleVerdict> verdicts;
  std::int64_t passed = 0, failed = 0, unsupported = 0;
  bool stopped = false;
};

/// One oracle on one shape of one participant.
struct OracleQuestion {
  const Participant* participant = nullptr;
  const Oracle* oracle = nullptr;
  Case base;
};
/// Every oracle on every shape of every participant, of the shard that the options name.
[[nodiscard]] std::vector<OracleQuestion> oracle_questions(std::span<const Participant> participants,
                                                           const OracleOptions& options);

[[nodiscard]] OracleRun run_oracles(std::span<const OracleQuestion> questions, int repeats,
                                    const RunHooks& hooks, JudgeTeam judges);
[[nodiscard]] OracleRun run_oracles(std::span<const Participant> participants, const OracleOptions& options,
                                    const RunHooks& hooks, Judge& judge);

}  // namespace mla::verify
