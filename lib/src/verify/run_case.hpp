// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/backend.hpp"
#include "mla/numerics.hpp"
#include "verify/case.hpp"
#include "verify/expected.hpp"
#include "verify/problem.hpp"
#include "verify/stage.hpp"

namespace mla::verify {

/// Where cases are run.
struct Machine {
  Device device;
  DeviceMemory* memory = nullptr;
};
/// This host for CPU backends; throws kDevice for a device backend where there is no device.
[[nodiscard]] Machine machine_for(const Backend& backend);

/// What a backend gave for a staged problem.
struct Execution {
  std::string failure;  ///< a sentence, or empty: it threw, wrote where it must not, changed an input
  std::string plan;     ///< the plan's description
  std::vector<double> out, lse;  ///< packed; lse empty if not asked for
  double seconds = 0;
};
/// Runs the backend once. Throws kUnsupported where the backend refuses; every other failure is part of the result.
[[nodiscard]] Execution execute(const Backend& backend, Stage& stage, const Problem& problem,
                                const Device& device, const PlanOptions& options);

enum class Outcome : std::uint8_t { kPassed, kFailed, kUnsupported };
[[nodiscard]] std::string_view name_of(Outcome outcome) noexcept;

/// The judgement of one backend on one case.
struct Verdict {
  Case c;
  std::string backend;
  Outcome outcome = Outcome::kPassed;
  std::string reason;  ///< why it failed or is not supported; empty if passed
  ErrorReport report;  ///< of a run that could be compared
  std::string plan;
  double seconds = 0;  ///< of the backend's run
  /// Share of the budget; infinite for a failure that has none.
  [[nodiscard]] double share() const noexcept;
};

/// A case with its reference: made once, used for every backend.
class CaseRun {
 public:
  explicit CaseRun(const Case& c);
  explicit CaseRun(Problem problem);
  CaseRun(const CaseRun&) = delete;  // the reference points into the problem
  CaseRun& operator=(const CaseRun&) = delete;
  [[nodiscard]] const Problem& problem() const noexcept { return problem_; }
  [[nodiscard]] Verdict judge(const Backend& backend, const Machine& machine);

 private:
  Problem problem_;
  Expected expected_;
};

/// One backend on one case.
[[nodiscard]] Verdict run_case(const Backend& backend, const Case& c);

}  // namespace mla::verify
