// SPDX-License-Identifier: Apache-2.0
#include "verify/run_suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "peer/peer_backend.hpp"
#include "verify/judge.hpp"
#include "verify/mutants.hpp"
#include "verify/suite.hpp"

namespace mla::verify {
namespace {

constexpr std::string_view kMutantPrefix = "mutant:";

void add_all(Participants& participants) {
  for (const Backend* backend : backends()) {
    try {
      participants.ready.push_back({backend, machine_for(*backend), {}});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kDevice) throw;
      participants.left_out.emplace_back(backend->info().name, e.what());
    }
  }
}

/// Runs cases one after another and counts.
class Runner {
 public:
  Runner(std::span<const Participant> participants, const RunHooks& hooks, Judge& judge)
      : participants_(participants), hooks_(hooks), judge_(judge), start_(std::chrono::steady_clock::now()) {}

  [[nodiscard]] bool go_on() {
    if (hooks_.stop && hooks_.stop()) run_.stopped = true;
    return !run_.stopped && !(hooks_.fail_fast && run_.failed > 0);
  }

  void run(const Case& c) {
    if (hooks_.step) hooks_.step(to_text(c));
    for (const Participant& p : participants_) {
      run_.verdicts.push_back(judge_.judge(c, p));
      switch (run_.verdicts.back().outcome) {
        case Outcome::kPassed:
          ++run_.passed;
          break;
        case Outcome::kFailed:
          ++run_.failed;
          break;
        case Outcome::kUnsupported:
          ++run_.unsupported;
          break;
      }
    }
    ++run_.cases;
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  SuiteRun finish() {
    run_.seconds = seconds();
    return std::move(run_);
  }

 private:
  std::span<const Participant> participants_;
  const RunHooks& hooks_;
  Judge& judge_;
  std::chrono::steady_clock::time_point start_;
  SuiteRun run_;
};

}  // namespace

Participants choose_participants(std::string_view names) {
  Participants participants;
  if (names == "all") {
    add_all(participants);
    return participants;
  }
  for (const std::string& name : text::split(names, ',')) {
    if (name.starts_with(kMutantPrefix)) {
      std::shared_ptr<const Backend> mutant = make_mutant_backend(name.substr(kMutantPrefix.size()));
      participants.ready.push_back({mutant.get(), machine_for(*mutant), mutant});
      continue;
    }
    if (peer::is_peer_name(name)) {
      std::shared_ptr<const Backend> backend = peer::open_peer(name);
      const Backend* seen = backend.get();
      participants.ready.push_back({seen, machine_for(*seen), std::move(backend)});
      continue;
    }
    const Backend& backend = get_backend(name);
    participants.ready.push_back({&backend, machine_for(backend), {}});
  }
  return participants;
}

SuiteRun run_suite(std::span<const Case> cases, std::span<const Participant> participants,
                   const RunHooks& hooks, Judge& judge) {
  Runner runner(participants, hooks, judge);
  for (const Case& c : cases) {
    if (!runner.go_on()) break;
    runner.run(c);
  }
  return runner.finish();
}

SuiteRun run_fuzzer(const CaseSource& source, std::uint64_t seed, double seconds,
                    const std::function<bool(const Case&)>& wanted, std::span<const Participant> participants,
                    const RunHooks& hooks, Judge& judge) {
  Runner runner(participants, hooks, judge);
  for (std::uint64_t i = 0; runner.seconds() < seconds && runner.go_on(); ++i) {
    const Case c = source.random_case(seed + i);
    if (wanted(c)) runner.run(c);
  }
  return runner.finish();
}

std::vector<const Verdict*> worst_first(const SuiteRun& run) {
  std::vector<const Verdict*> order;
  for (const Verdict& v : run.verdicts) order.push_back(&v);
  const auto rank = [](const Verdict& v) {
    return v.outcome == Outcome::kFailed ? 0 : v.outcome == Outcome::kPassed ? 1 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](const Verdict* a, const Verdict* b) {
    if (rank(*a) != rank(*b)) return rank(*a) < rank(*b);
    return a->share() > b->share();
  });
  return order;
}

std::string rerun_command(const Verdict& verdict) {
  // A peer's name may hold blanks: its arguments.
  const char* quote = verdict.backend.find(' ') == std::string::npos ? "" : "'";
  return fmt::format("mla-verify run --backends {1}{0}{1} --case '{2}'", verdict.backend, quote,
                     to_text(verdict.c));
}

}  // namespace mla::verify
