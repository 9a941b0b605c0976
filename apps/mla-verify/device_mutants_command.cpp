// SPDX-License-Identifier: Apache-2.0
// mla-verify mutants --backend cuda-naive: the verifier on trial on a device.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "mla/error.hpp"
#include "verify/judge.hpp"
#include "verify/mutants.hpp"
#include "verify/mutation.hpp"
#include "view.hpp"
#include "worker.hpp"
#ifdef MLA_CUDA_MUTANTS
#include "naive_faults.hpp"
#endif

namespace mla::verify_app {
namespace {

/// Seconds until a kernel that gives no answer hangs; the largest case of the quick suite takes a fraction of
/// one.
constexpr double kPatience = 10;

/// The suite's cases, then the oracles, until something is found.
verify::MutantVerdict try_mutant(const verify::DeviceMutant& mutant, const verify::Participant& participant,
                                 const verify::Suite& suite, std::uint64_t seed,
                                 const verify::RunHooks& hooks, verify::Judge& judge) {
  verify::MutantVerdict verdict;
  verdict.mutant = {mutant.name, mutant.fault, mutant.source, nullptr};
  const verify::SuiteRun cases = verify::run_suite(suite.cases, {&participant, 1}, hooks, judge);
  verdict.asked = cases.passed + cases.failed;
  if (cases.failed > 0) {
    verdict.killed = true;
    verdict.killer = to_text(cases.verdicts.back().c);
    verdict.reason = cases.verdicts.back().reason;
    return verdict;
  }
  const verify::OracleRun oracles =
      verify::run_oracles({&participant, 1}, {seed, 0, false, {}}, hooks, judge);
  verdict.asked += oracles.passed + oracles.failed;
  if (oracles.failed > 0) {
    const verify::OracleVerdict& last = oracles.verdicts.back();
    verdict.killed = true;
    verdict.killer = fmt::format("oracle {} on {}", last.oracle, to_text(last.base));
    verdict.reason = last.outcome.reason;
  }
  return verdict;
}

}  // namespace

void hand_over_device_mutants() {
#ifdef MLA_CUDA_MUTANTS
  verify::DeviceMutants mutants;
  for (const NaiveMutant& m : naive_mutants()) mutants.list.push_back({m.name, m.fault, m.source, m.sound});
  mutants.make = &make_naive_mutant;
  verify::set_device_mutants(std::move(mutants));
#endif
}

int device_mutants(const MutantsRequest& request) {
  // The kernel without a fault is asked everything and takes longest: it comes last.
  std::vector<verify::DeviceMutant> mutants = verify::device_mutants().list;
  std::erase_if(mutants, [&](const auto& m) { return !m.name.starts_with(request.backend + "/"); });
  std::ranges::stable_partition(mutants, [](const auto& m) { return !m.sound; });
  if (mutants.empty()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("this build has no wrong kernels of '{}'", request.backend),
                "those of cuda-naive need the option MLA_CUDA_MUTANTS when building");
  }
  verify::MutationRun run;
  verify::RunHooks hooks;
  hooks.stop = cli::interrupted;
  hooks.fail_fast = true;
  std::vector<std::string> sound;
  bool accused = false;
  {
    report::Progress progress("mutants", static_cast<std::int64_t>(mutants.size()), !request.output.quiet);
    for (const verify::DeviceMutant& mutant : mutants) {
      progress.step(mutant.name);
      const std::string name = fmt::format("mutant:{}", mutant.name);
      const verify::Participants participants = verify::choose_participants(name);
      const verify::Participant& participant = participants.ready.front();
      const verify::Suite suite = verify::make_suite(request.suite, {&participant.backend, 1}, request.seed);
      const std::unique_ptr<verify::Judge> judge = make_isolated_judge(name, {}, kPatience);
      verify::MutantVerdict verdict = try_mutant(mutant, participant, suite, request.seed, hooks, *judge);
      run.stopped = cli::interrupted();
      if (run.stopped && !verdict.killed) break;  // not asked everything
      if (mutant.sound) {
        accused = accused || verdict.killed;
        sound.push_back(verdict.killed ? fmt::format("FALSE ALARM: {} has no fault: {}: {}", mutant.name,
                                                     verdict.killer, verdict.reason)
                                       : fmt::format("{}, which has no fault, passes all {} questions",
                                                     mutant.name, verdict.asked));
        continue;
      }
      run.killed += verdict.killed ? 1 : 0;
      run.verdicts.push_back(std::move(verdict));
    }
  }
  report::Document document = mutants_document(run, {});
  document.headline.insert(document.headline.end(), sound.begin(), sound.end());
  cli::print(document, request.output);
  if (run.stopped) return cli::kInterrupted;
  const bool good = run.killed == static_cast<std::int64_t>(run.verdicts.size()) && !accused;
  return good ? cli::kOk : cli::kCheckFailed;
}

}  // namespace mla::verify_app
