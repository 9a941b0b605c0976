// SPDX-License-Identifier: Apache-2.0
#include "verify/run_suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "peer/peer_backend.hpp"
#include "verify/judge.hpp"
#include "verify/mutants.hpp"
#include "verify/suite.hpp"
#include "verify/task_queue.hpp"

namespace mla::verify {
namespace {

constexpr std::string_view kMutantPrefix = "mutant:";
/// Bytes of host memory from which on a case is not judged beside others of its kind.
constexpr double kBulky = 1e9;

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

/// Collects what judges find, in whatever order, and counts. Its functions are called by one thread at a time.
class Collector {
 public:
  explicit Collector(const RunHooks& hooks) : hooks_(hooks), start_(std::chrono::steady_clock::now()) {}

  [[nodiscard]] bool go_on() {
    if (hooks_.stop && hooks_.stop()) run_.stopped = true;
    return !run_.stopped && !(hooks_.fail_fast && run_.failed > 0);
  }

  void announce(const Case& c) const {
    if (hooks_.step) hooks_.step(to_text(c));
  }

  /// The verdicts of case `i` of the order that is wanted in the end.
  void add(std::uint64_t i, std::vector<Verdict> verdicts) {
    for (const Verdict& v : verdicts) {
      switch (v.outcome) {
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
    found_.emplace(i, std::move(verdicts));
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  SuiteRun finish() {
    run_.cases = static_cast<std::int64_t>(found_.size());
    for (auto& [i, verdicts] : found_)
      std::move(verdicts.begin(), verdicts.end(), std::back_inserter(run_.verdicts));
    run_.seconds = seconds();
    return std::move(run_);
  }

 private:
  const RunHooks& hooks_;
  std::chrono::steady_clock::time_point start_;
  SuiteRun run_;
  std::map<std::uint64_t, std::vector<Verdict>> found_;
};

std::vector<Verdict> judge_all(Judge& judge, const Case& c, std::span<const Participant> participants) {
  std::vector<Verdict> verdicts;
  for (const Participant& p : participants) verdicts.push_back(judge.judge(c, p));
  return verdicts;
}

SuiteRun run_team(std::span<const Case> cases, std::span<const Participant> participants,
                  const RunHooks& hooks, std::span<Judge* const> judges) {
  Collector collector(hooks);
  std::mutex mutex;
  std::vector<bool> bulky;
  for (const Case& c : cases) bulky.push_back(is_bulky(c));
  TaskQueue queue(std::move(bulky), [&] {
    const std::lock_guard lock(mutex);
    return collector.go_on();
  });
  share_out(queue, judges.size(), [&](std::size_t worker, std::size_t i) {
    {
      const std::lock_guard lock(mutex);
      collector.announce(cases[i]);
    }
    std::vector<Verdict> verdicts = judge_all(*judges[worker], cases[i], participants);
    const std::lock_guard lock(mutex);
    collector.add(i, std::move(verdicts));
  });
  return collector.finish();
}

std::vector<Judge*> members(JudgeTeam judges) {
  std::vector<Judge*> list;
  for (const std::unique_ptr<Judge>& judge : judges) list.push_back(judge.get());
  return list;
}

}  // namespace

const Participant* Participants::find(std::string_view name) const noexcept {
  for (const Participant& p : ready)
    if (p.backend->info().name == name) return &p;
  return nullptr;
}

Participants choose_participants(std::string_view names) {
  Participants participants;
  if (names == "all") {
    add_all(participants);
    return participants;
  }
  std::set<std::string> named;
  for (const std::string& name : text::split(names, ',')) {
    if (!named.insert(name).second)
      throw Error(ErrorCode::kInvalidArgument, fmt::format("the backend '{}' is named twice", name));
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

bool is_bulky(const Case& c) noexcept {
  return c.far_rows || c.first_block > 0 || bytes_of(c) > kBulky;
}

SuiteRun run_suite(std::span<const Case> cases, std::span<const Participant> participants,
                   const RunHooks& hooks, JudgeTeam judges) {
  return run_team(cases, participants, hooks, members(judges));
}

SuiteRun run_suite(std::span<const Case> cases, std::span<const Participant> participants,
                   const RunHooks& hooks, Judge& judge) {
  Judge* one = &judge;
  return run_team(cases, participants, hooks, {&one, 1});
}

SuiteRun run_fuzzer(const CaseSource& source, std::uint64_t seed, double seconds,
                    const std::function<bool(const Case&)>& wanted, std::span<const Participant> participants,
                    const RunHooks& hooks, JudgeTeam judges) {
  Collector collector(hooks);
  std::mutex mutex;
  std::uint64_t next = 0;
  const auto go_on = [&] { return collector.seconds() < seconds && collector.go_on(); };
  const auto serve = [&](std::size_t worker, std::size_t) {
    for (;;) {
      std::uint64_t i = 0;
      Case c;
      {
        const std::lock_guard lock(mutex);
        do {
          if (!go_on()) return;
          i = next++;
          c = source.random_case(seed + i);
        } while (!wanted(c));
        collector.announce(c);
      }
      std::vector<Verdict> verdicts = judge_all(*judges[worker], c, participants);
      const std::lock_guard lock(mutex);
      collector.add(i, std::move(verdicts));
    }
  };
  // Each worker takes one task, which draws cases until the time is over.
  TaskQueue queue(std::vector<bool>(judges.size(), false), {});
  share_out(queue, judges.size(), serve);
  return collector.finish();
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
