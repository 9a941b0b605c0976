// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "commands.hpp"
#include "verify/judge.hpp"
#include "verify/junit.hpp"
#include "view.hpp"
#include "worker.hpp"

namespace mla::verify_app {

/// One process, one case, one backend: what a debugger or compute-sanitizer wants.
int replay(const RunRequest& request) {
  const verify::Repro repro = verify::parse_repro(verify::read_file(request.replay), request.replay);
  load_plugins(request.plugins.empty() ? repro.plugins : request.plugins);
  const verify::Participants participants = verify::choose_participants(repro.backend);
  const verify::Participant& participant = participants.ready.front();
  verify::LocalJudge judge;
  verify::Verdict verdict;
  if (repro.oracle.empty()) {
    verdict = judge.judge(repro.c, participant);
  } else {
    const verify::OracleOutcome outcome = judge.ask(
        verify::get_oracle(repro.oracle), {participant.backend, participant.machine, repro.c,
                                           verify::repeats_for(*participant.backend, request.repeats)});
    verdict.c = repro.c;
    verdict.backend = repro.backend;
    verdict.outcome = outcome.outcome;
    verdict.failure = outcome.failure;
    verdict.reason = outcome.reason;
  }
  cli::print(replay_document(repro, verdict), request.output);
  if (verdict.outcome == verify::Outcome::kUnsupported) return cli::kMachine;
  return verdict.outcome == verify::Outcome::kPassed ? cli::kOk : cli::kCheckFailed;
}

}  // namespace mla::verify_app
