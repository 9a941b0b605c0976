// SPDX-License-Identifier: Apache-2.0
#include "verify/run_suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "peer/peer_backend.hpp"

namespace mla::verify {
namespace {

void add_all(Participants& participants) {
  for (const Backend* backend : backends()) {
    try {
      participants.ready.push_back({backend, machine_for(*backend)});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kDevice) throw;
      participants.left_out.emplace_back(backend->info().name, e.what());
    }
  }
}

}  // namespace

Participants choose_participants(std::string_view names) {
  Participants participants;
  if (names == "all") {
    add_all(participants);
    return participants;
  }
  for (const std::string& name : text::split(names, ',')) {
    if (peer::is_peer_name(name)) {
      std::shared_ptr<const Backend> backend = peer::open_peer(name);
      const Backend* seen = backend.get();
      participants.ready.push_back({seen, machine_for(*seen), std::move(backend)});
      continue;
    }
    const Backend& backend = get_backend(name);
    participants.ready.push_back({&backend, machine_for(backend)});
  }
  return participants;
}

SuiteRun run_suite(std::span<const Case> cases, std::span<const Participant> participants,
                   const RunHooks& hooks) {
  SuiteRun run;
  const auto start = std::chrono::steady_clock::now();
  for (const Case& c : cases) {
    if (hooks.stop && hooks.stop()) {
      run.stopped = true;
      break;
    }
    if (hooks.step) hooks.step(to_text(c));
    CaseRun one(c);
    for (const Participant& p : participants) {
      run.verdicts.push_back(one.judge(*p.backend, p.machine));
      switch (run.verdicts.back().outcome) {
        case Outcome::kPassed:
          ++run.passed;
          break;
        case Outcome::kFailed:
          ++run.failed;
          break;
        case Outcome::kUnsupported:
          ++run.unsupported;
          break;
      }
    }
    if (hooks.fail_fast && run.failed > 0) break;
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
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
