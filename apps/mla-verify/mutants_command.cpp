// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "verify/judge.hpp"
#include "view.hpp"
#include "worker.hpp"

namespace mla::verify_app {
namespace {

/// Seconds until a wrong kernel that says nothing hangs: all of them answer in a fraction of one.
constexpr double kPatience = 5;

}  // namespace

int mutants(const MutantsRequest& request) {
  const std::vector<verify::Mutant> all = verify::all_mutants();
  // The suite's lengths are chosen around the mutants' own tile.
  const std::unique_ptr<verify::EmulatedKernel> one = all.front().make();
  const Backend* backend = one.get();
  const verify::Suite suite = verify::make_suite(request.suite, {&backend, 1}, request.seed);
  verify::RunHooks hooks;
  hooks.stop = cli::interrupted;
  verify::MutationRun run;
  verify::IdealRun ideal;
  {
    report::Progress progress("mutants", static_cast<std::int64_t>(suite.cases.size()) + request.ideal_seeds,
                              !request.output.quiet);
    hooks.step = [&progress](std::string_view what) { progress.step(what); };
    run = verify::run_mutants(all, suite, hooks);
    for (const verify::Mutant& mutant : verify::violent_mutants()) {
      if (run.stopped) break;
      const std::string name = std::string(verify::make_kernel(mutant)->info().name);
      const std::unique_ptr<verify::Judge> beside = make_isolated_judge(name, {}, kPatience);
      run.verdicts.push_back(verify::run_mutant(mutant, suite, hooks, *beside));
      run.killed += run.verdicts.back().killed ? 1 : 0;
    }
    if (!run.stopped) ideal = verify::run_ideal_kernels(request.seed, request.ideal_seeds, hooks);
  }
  cli::print(mutants_document(run, ideal), request.output);
  if (run.stopped || ideal.stopped) return cli::kInterrupted;
  const bool good = run.killed == static_cast<std::int64_t>(run.verdicts.size()) && ideal.alarms.empty();
  return good ? cli::kOk : cli::kCheckFailed;
}

}  // namespace mla::verify_app
