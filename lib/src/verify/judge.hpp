// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verify/oracles.hpp"
#include "verify/run_case.hpp"

namespace mla::peer {
class Process;
}

/// Who judges: this process, or one beside it that may crash or hang.
namespace mla::verify {

class Judge {
 public:
  Judge() = default;
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;
  virtual ~Judge();
  /// One backend on one case. Asking for the same case again is cheap: its reference is kept.
  [[nodiscard]] virtual Verdict judge(const Case& c, const Participant& participant) = 0;
  [[nodiscard]] virtual OracleOutcome ask(const Oracle& oracle, const OracleSubject& subject) = 0;
};

class LocalJudge final : public Judge {
 public:
  [[nodiscard]] Verdict judge(const Case& c, const Participant& participant) override;
  [[nodiscard]] OracleOutcome ask(const Oracle& oracle, const OracleSubject& subject) override;
  /// Makes the case and the backend's reference, so that what follows is the backend's own time.
  void prepare(const Case& c, const Backend& backend);

 private:
  CaseRun& run_of(const Case& c);
  std::unique_ptr<CaseRun> run_;
};

/// Judges in a process beside this one. One that crashes, or whose backend is silent for too long, is a
/// failure, and a new process goes on; so it does after a device's failure, which may have spoilt everything
/// on the device.
class IsolatedJudge final : public Judge {
 public:
  struct Options {
    std::vector<std::string> command;  ///< starts serve_judge() with the same participants
    double timeout = 120;              ///< seconds a backend may take for one call
    bool hurry = false;                ///< less for small cases: shrinking meets a hang again and again
  };
  explicit IsolatedJudge(Options options);
  ~IsolatedJudge() override;
  [[nodiscard]] Verdict judge(const Case& c, const Participant& participant) override;
  [[nodiscard]] OracleOutcome ask(const Oracle& oracle, const OracleSubject& subject) override;
  void set_hurry(bool hurry) noexcept { options_.hurry = hurry; }

 private:
  /// The last line of an answer, or how the process failed.
  struct Answer {
    std::string line;
    Failure failure = Failure::kNone;
    std::string reason;
  };
  Answer exchange(const std::string& request, double timeout);

  Options options_;
  std::unique_ptr<peer::Process> process_;
};

/// The other side of IsolatedJudge: answers requests from stdin on stdout until stdin ends.
void serve_judge(const Participants& participants);

}  // namespace mla::verify
