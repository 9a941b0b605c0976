// SPDX-License-Identifier: Apache-2.0
#include "verify/mutation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/judge.hpp"
#include "verify/oracles.hpp"

namespace mla::verify {
namespace {

/// The largest case an ideal kernel is asked, in floating-point operations: thousands of seeds in minutes.
constexpr double kIdealWork = 3e6;

struct Trial {
  MutantVerdict verdict;
  std::unique_ptr<EmulatedKernel> kernel;

  void kill(std::string killer, std::string reason) {
    verdict.killed = true;
    verdict.killer = std::move(killer);
    verdict.reason = std::move(reason);
  }
};

bool asked_to_stop(const RunHooks& hooks) {
  return hooks.stop && hooks.stop();
}

/// One case on every mutant that is still alive: the reference is computed once.
void ask_case(const Case& c, const Machine& machine, std::span<Trial> trials) {
  CaseRun run(c);
  for (Trial& trial : trials) {
    if (trial.verdict.killed) continue;
    const Verdict verdict = run.judge(*trial.kernel, machine);
    if (verdict.outcome == Outcome::kUnsupported) continue;
    ++trial.verdict.asked;
    if (verdict.outcome == Outcome::kFailed) trial.kill(to_text(c), verdict.reason);
  }
}

void ask_oracles(Trial& trial, const Machine& machine, std::uint64_t seed, const RunHooks& hooks) {
  const Participant participant{trial.kernel.get(), machine, {}};
  RunHooks own = hooks;
  own.fail_fast = true;
  LocalJudge judge;
  const OracleRun run = run_oracles({&participant, 1}, {seed, 3, false, {}}, own, judge);
  trial.verdict.asked += static_cast<std::int64_t>(run.verdicts.size());
  if (run.failed > 0) {
    const OracleVerdict& last = run.verdicts.back();
    trial.kill(fmt::format("oracle {} on {}", last.oracle, to_text(last.base)), last.outcome.reason);
  }
}

}  // namespace

MutationRun run_mutants(std::span<const Mutant> mutants, const Suite& suite, const RunHooks& hooks) {
  std::vector<Trial> trials;
  for (const Mutant& mutant : mutants) {
    Trial& trial = trials.emplace_back();
    trial.verdict.mutant = mutant;
    trial.kernel = make_kernel(mutant);
  }
  MutationRun run;
  const Machine machine{host_device(), &host_memory()};
  const auto all_killed = [&] {
    return std::all_of(trials.begin(), trials.end(), [](const Trial& t) { return t.verdict.killed; });
  };
  for (const Case& c : suite.cases) {
    if (asked_to_stop(hooks)) run.stopped = true;
    if (run.stopped || all_killed()) break;
    if (hooks.step) hooks.step(to_text(c));
    ask_case(c, machine, trials);
  }
  for (Trial& trial : trials) {
    if (asked_to_stop(hooks)) run.stopped = true;
    if (run.stopped) break;
    const std::uint64_t seed = suite.cases.empty() ? 1 : suite.cases.front().seed;
    if (!trial.verdict.killed) ask_oracles(trial, machine, seed, hooks);
  }
  for (Trial& trial : trials) {
    run.killed += trial.verdict.killed ? 1 : 0;
    run.verdicts.push_back(std::move(trial.verdict));
  }
  return run;
}

MutantVerdict run_mutant(const Mutant& mutant, const Suite& suite, const RunHooks& hooks, Judge& judge) {
  Trial trial;
  trial.verdict.mutant = mutant;
  trial.kernel = make_kernel(mutant);
  const Participant participant{trial.kernel.get(), {host_device(), &host_memory()}, {}};
  for (const Case& c : suite.cases) {
    if (trial.verdict.killed || asked_to_stop(hooks)) break;
    if (hooks.step) hooks.step(to_text(c));
    const Verdict verdict = judge.judge(c, participant);
    if (verdict.outcome == Outcome::kUnsupported) continue;
    ++trial.verdict.asked;
    if (verdict.outcome == Outcome::kFailed) trial.kill(to_text(c), verdict.reason);
  }
  return trial.verdict;
}

IdealRun run_ideal_kernels(std::uint64_t first_seed, std::int64_t seeds, const RunHooks& hooks) {
  std::vector<std::unique_ptr<EmulatedKernel>> kernels;
  std::vector<const Backend*> backends;
  for (const NamedProfile& p : ideal_profiles()) {
    EmulatedKernel::Options options;
    options.name = p.name;
    options.profile = p.profile;
    kernels.push_back(std::make_unique<EmulatedKernel>(std::move(options)));
    backends.push_back(kernels.back().get());
  }
  const Machine machine{host_device(), &host_memory()};
  const CaseSource source(false, backends, kIdealWork);
  IdealRun run;
  for (std::int64_t i = 0; i < seeds; ++i) {
    if (asked_to_stop(hooks)) {
      run.stopped = true;
      break;
    }
    const Case c = source.random_case(first_seed + static_cast<std::uint64_t>(i));
    if (hooks.step) hooks.step(to_text(c));
    CaseRun one(c);
    ++run.seeds;
    for (const Backend* backend : backends) {
      const Verdict verdict = one.judge(*backend, machine);
      if (verdict.outcome == Outcome::kUnsupported) continue;
      ++run.judged;
      run.worst_share = std::max(run.worst_share, verdict.share());
      if (verdict.outcome == Outcome::kFailed) run.alarms.push_back({verdict.backend, c, verdict.reason});
    }
    if (hooks.fail_fast && !run.alarms.empty()) break;
  }
  return run;
}

}  // namespace mla::verify
