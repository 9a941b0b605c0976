// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
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

/// In which way a backend failed. A reduced case has to fail in the same one.
enum class Failure : std::uint8_t {
  kNone,
  kError,   ///< over the budget, or an oracle's expectation is not met
  kNan,     ///< NaN or Inf where the reference has none, or the reverse
  kThrew,   ///< it threw, or the device reported a fault
  kMemory,  ///< it wrote where it must not
  kCrash,   ///< its process died
  kHang,    ///< it gave no answer in time
};
/// "none", "error", "nan", "threw", "memory", "crash", "hang".
[[nodiscard]] std::string_view name_of(Failure failure) noexcept;
/// Throws kParse.
[[nodiscard]] Failure parse_failure(std::string_view text);

/// Worst share of the budget over something: keys of the request, or head.
using Strip = std::map<std::int64_t, double>;

/// What a backend gave for a staged problem.
struct Execution {
  Failure failed = Failure::kNone;  ///< kThrew or kMemory; what can be compared is judged afterwards
  std::string failure;              ///< a sentence, or empty
  std::string plan;                 ///< the plan's description
  std::vector<double> out, lse;     ///< packed; lse empty if not asked for
  double seconds = 0;
};
/// Runs the backend once. Throws kUnsupported where the backend refuses; every other failure is part of the
/// result. `planned`: make the plan for this shape instead of the problem's (lengths at least as long).
[[nodiscard]] Execution execute(const Backend& backend, Stage& stage, const Problem& problem,
                                const Device& device, const PlanOptions& options,
                                const AttentionShape* planned = nullptr);

enum class Outcome : std::uint8_t { kPassed, kFailed, kUnsupported };
[[nodiscard]] std::string_view name_of(Outcome outcome) noexcept;

/// The judgement of one backend on one case.
struct Verdict {
  Case c;
  std::string backend;
  Outcome outcome = Outcome::kPassed;
  Failure failure = Failure::kNone;
  std::string reason;  ///< why it failed or is not supported; empty if passed
  ErrorReport report;  ///< of a run that could be compared, without row_shares
  Strip by_length, by_head;
  std::string plan;
  double seconds = 0;  ///< of the backend's run
  /// Share of the budget; infinite for a failure that has none.
  [[nodiscard]] double share() const noexcept;
};

/// What a case forces of the backends.
[[nodiscard]] PlanOptions plan_options(const Case& c);

/// Whether the backend takes the case with what it forces (splits): it supports the shape and makes a plan.
[[nodiscard]] bool is_taken(const Backend& backend, const Case& c, const Device& device);

/// A case with its reference: made once, used for every backend.
class CaseRun {
 public:
  explicit CaseRun(const Case& c);
  explicit CaseRun(Problem problem);
  CaseRun(const CaseRun&) = delete;  // the reference points into the problem
  CaseRun& operator=(const CaseRun&) = delete;
  [[nodiscard]] const Problem& problem() const noexcept { return problem_; }
  [[nodiscard]] Verdict judge(const Backend& backend, const Machine& machine);
  /// Makes what judge() needs of the reference now.
  void prepare(const Backend& backend);

 private:
  Problem problem_;
  Expected expected_;
};

/// One backend on one case.
[[nodiscard]] Verdict run_case(const Backend& backend, const Case& c);

}  // namespace mla::verify
