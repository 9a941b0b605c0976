// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/run_case.hpp"

namespace mla::verify {

class CaseSource;
class Judge;

/// A backend that takes part, with the machine it runs on.
struct Participant {
  const Backend* backend = nullptr;
  Machine machine;
  std::shared_ptr<const Backend> owned{};  ///< a peer's process or a mutant lives as long as the participant
};

/// The backends of a run and why others are left out.
struct Participants {
  std::vector<Participant> ready;
  std::vector<std::pair<std::string, std::string>> left_out;  ///< name, reason
  /// Null if there is none of that name.
  [[nodiscard]] const Participant* find(std::string_view name) const noexcept;
};

/// `names`: "all", or names joined by commas. Device backends without a device are left out of "all"; named
/// ones throw kDevice. "peer:FILE" is a kernel in another process (peers/PROTOCOL.md); one that skips throws
/// kUnsupported with its sentence. "mutant:NAME" is a deliberately wrong kernel, to see what a failure looks
/// like. Throws kInvalidArgument with a did-you-mean hint for an unknown name.
[[nodiscard]] Participants choose_participants(std::string_view names);

/// Called by one thread at a time, but not always by the same.
struct RunHooks {
  std::function<bool()> stop;                  ///< asked between cases; may be empty
  std::function<void(std::string_view)> step;  ///< told what comes next; may be empty
  bool fail_fast = false;
};

/// The part of a run that is this process's: every count-th question, from the index-th on.
struct Shard {
  std::size_t index = 0, count = 1;
  [[nodiscard]] bool has(std::size_t question) const noexcept { return question % count == index; }
};

/// Judges that work at the same time, each on its own questions.
using JudgeTeam = std::span<const std::unique_ptr<Judge>>;

struct SuiteRun {
  std::vector<Verdict> verdicts;  ///< in the order of the cases, whoever was asked first
  std::int64_t cases = 0, passed = 0, failed = 0, unsupported = 0;
  bool stopped = false;  ///< by the hook, before the end
  double seconds = 0;
};

/// Every case on every participant; a case is one judge's, so that its reference is computed once.
[[nodiscard]] SuiteRun run_suite(std::span<const Case> cases, std::span<const Participant> participants,
                                 const RunHooks& hooks, JudgeTeam judges);
[[nodiscard]] SuiteRun run_suite(std::span<const Case> cases, std::span<const Participant> participants,
                                 const RunHooks& hooks, Judge& judge);

/// Whether a case needs gigabytes: of a device's memory, because rows or tokens lie on both sides of 2^31, or of the
/// host's, because of many long queries.
[[nodiscard]] bool is_bulky(const Case& c) noexcept;

/// A fuzzer: random cases that are `wanted` until `seconds` are over, the i-th from seed + i.
[[nodiscard]] SuiteRun run_fuzzer(const CaseSource& source, std::uint64_t seed, double seconds,
                                  const std::function<bool(const Case&)>& wanted,
                                  std::span<const Participant> participants, const RunHooks& hooks,
                                  JudgeTeam judges);

/// The order of a summary: failures first, then by share of the budget, then what is not supported.
[[nodiscard]] std::vector<const Verdict*> worst_first(const SuiteRun& run);

/// A command line that repeats one verdict.
[[nodiscard]] std::string rerun_command(const Verdict& verdict);

}  // namespace mla::verify
