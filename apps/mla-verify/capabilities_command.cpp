// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "mla/error.hpp"
#include "verify/judge.hpp"
#include "view.hpp"
#include "worker.hpp"

namespace mla::verify_app {

int capabilities(const CapabilitiesRequest& request) {
  load_plugins(request.plugins);
  const std::string names = participant_names(request.backends, request.peers);
  const verify::Participants participants = verify::choose_participants(names);
  if (participants.ready.empty()) throw Error(ErrorCode::kDevice, "no backend can run on this machine");
  const std::unique_ptr<verify::Judge> judge = make_isolated_judge(names, request.plugins, request.timeout);
  verify::RunHooks hooks;
  hooks.stop = cli::interrupted;
  verify::CapabilityRun run;
  {
    report::Progress progress("capabilities", 0, !request.output.quiet);
    hooks.step = [&progress](std::string_view what) { progress.step(what); };
    run = verify::run_capabilities(participants.ready, request.seed, hooks, *judge);
  }
  cli::print(capabilities_document(run, participants), request.output);
  if (run.stopped) return cli::kInterrupted;
  return run.untrue == 0 ? cli::kOk : cli::kCheckFailed;
}

}  // namespace mla::verify_app
