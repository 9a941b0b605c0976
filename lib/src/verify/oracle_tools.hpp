// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "mla/error.hpp"
#include "verify/expected.hpp"
#include "verify/oracles.hpp"

/// What oracles share: running a problem, comparing two runs bit by bit, comparing a run with rows that are
/// known.
namespace mla::verify {

/// A run that failed outright: the oracle's answer.
class RunFailure : public Error {
 public:
  explicit RunFailure(const Execution& run)
      : Error(ErrorCode::kInternal, run.failure), failure_(run.failed) {}
  [[nodiscard]] Failure failure() const noexcept { return failure_; }

 private:
  Failure failure_;
};

/// A problem on the backend's machine, to be run several times. Every run throws RunFailure if it failed outright.
class StagedProblem {
 public:
  StagedProblem(const OracleSubject& subject, const Problem& problem)
      : subject_(subject), problem_(problem), stage_(problem, *subject.machine.memory) {}
  /// `num_splits`: forced, 0 lets the backend decide. `planned`: as for execute().
  [[nodiscard]] Execution run(std::int32_t num_splits, const AttentionShape* planned = nullptr);

 private:
  const OracleSubject& subject_;
  const Problem& problem_;
  Stage stage_;
};

/// One run. Throws RunFailure for one that failed outright.
[[nodiscard]] Execution run_problem(const OracleSubject& subject, const Problem& problem,
                                    const AttentionShape* planned = nullptr);

/// The first place where two runs differ in a bit, or nothing.
[[nodiscard]] std::optional<std::string> bit_difference(const Execution& a, const Execution& b,
                                                        const Problem& problem);

/// Judges a run against given rows, with the budgets of the problem that `budgets` is of. Empty if all is within
/// budget.
[[nodiscard]] std::string against(const OracleSubject& subject, const Execution& run, Expected& budgets,
                                  std::span<const double> want, std::span<const double> want_lse);

/// Against a problem's own reference.
[[nodiscard]] std::string against_reference(const OracleSubject& subject, const Execution& run,
                                            Expected& expected);
[[nodiscard]] std::string against_reference(const OracleSubject& subject, const Execution& run,
                                            const Problem& problem);

/// The base case with one request of n keys and q_len queries.
[[nodiscard]] Case single_request(const Case& base, std::int32_t q_len, std::int32_t n);

/// "request 1, query 2, head 0".
[[nodiscard]] std::string name_row(const Problem& problem, std::int64_t row);

}  // namespace mla::verify
