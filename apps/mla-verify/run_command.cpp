// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <thread>

#include "commands.hpp"
#include "mla/error.hpp"
#include "progress_log.hpp"
#include "reduce.hpp"
#include "verify/judge.hpp"
#include "verify/junit.hpp"
#include "view.hpp"
#include "worker.hpp"

namespace mla::verify_app {
namespace {

using verify::Suite;

std::vector<const Backend*> backends_of(const verify::Participants& participants) {
  std::vector<const Backend*> backends;
  for (const verify::Participant& p : participants.ready) backends.push_back(p.backend);
  return backends;
}

Suite choose_suite(const RunRequest& request, const verify::Participants& participants, std::uint64_t seed) {
  Suite suite;
  if (request.fuzz_seconds > 0) {
    suite.name = request.suite + " at random";
    return suite;
  }
  if (!request.cases.empty()) {
    suite.name = "given";
    for (const std::string& text : request.cases) {
      suite.cases.push_back(verify::parse_case(text));
      validate(suite.cases.back());
      // A format that cannot hold the widths is the caller's mistake, not a backend's.
      (void)cache_layout(suite.cases.back().shape.cache, suite.cases.back().shape.dims);
    }
    return suite;
  }
  const std::vector<std::string> names = verify::suite_names();
  if (std::ranges::find(names, request.suite) == names.end() && std::ifstream(request.suite)) {
    suite.name = request.suite;
    suite.cases = verify::parse_cases(verify::read_file(request.suite), request.suite);
    return suite;
  }
  const std::vector<const Backend*> backends = backends_of(participants);
  suite = verify::make_suite(request.suite, backends, seed);
  std::vector<std::function<bool(const verify::Case&)>> takes;
  for (const verify::Participant& p : participants.ready) {
    takes.push_back(
        [&p](const verify::Case& c) { return verify::is_taken(*p.backend, c, p.machine.device); });
  }
  verify::top_up(suite, verify::suite_source(request.suite, backends), takes, seed);
  return suite;
}

/// Whether a case's text matches; everything does an empty pattern.
std::function<bool(const verify::Case&)> make_filter(const std::string& pattern) {
  if (pattern.empty()) return [](const verify::Case&) { return true; };
  try {
    return [regex = std::regex(pattern, std::regex::ECMAScript)](const verify::Case& c) {
      return std::regex_search(to_text(c), regex);
    };
  } catch (const std::regex_error& e) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--filter '{}' is not a regular expression: {}", pattern, e.what()));
  }
}

void apply_filter(Suite& suite, const std::function<bool(const verify::Case&)>& wanted,
                  const std::string& pattern) {
  std::erase_if(suite.cases, [&](const verify::Case& c) { return !wanted(c); });
  if (suite.cases.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--filter '{}' finds none of the suite's cases", pattern),
                "--list-cases without --filter shows them");
  }
}

void print_cases(const Suite& suite) {
  std::string text;
  for (const verify::Case& c : suite.cases) text += to_text(c) + '\n';
  cli::write_stdout(text);
}

std::uint64_t seed_of_clock() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

int processors() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

/// As many judges as are asked for or as the machine is good for, but none without a question. Each computes references
/// with its share of the processors.
std::vector<std::unique_ptr<verify::Judge>> make_judges(const RunRequest& request, const std::string& names,
                                                        std::size_t questions) {
  constexpr int kMost = 8;
  std::vector<std::unique_ptr<verify::Judge>> judges;
  if (request.in_process) {
    if (request.jobs > 1) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--in-process judges in this one process, so --jobs cannot be {}", request.jobs));
    }
    judges.push_back(std::make_unique<verify::LocalJudge>());
    return judges;
  }
  const int wanted = request.jobs > 0 ? request.jobs : std::min(processors(), kMost);
  const int jobs = static_cast<int>(std::clamp<std::size_t>(questions, 1, static_cast<std::size_t>(wanted)));
  for (int i = 0; i < jobs; ++i)
    judges.push_back(
        make_isolated_judge(names, request.plugins, request.timeout, std::max(1, processors() / jobs)));
  return judges;
}

/// Ends all judges but the first, whose processes take a while to leave a device.
void dismiss_helpers(std::vector<std::unique_ptr<verify::Judge>>& judges) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < judges.size(); ++i)
    threads.emplace_back([&judge = judges[i]] { judge.reset(); });
  threads.clear();  // joins
  judges.resize(1);
}

/// What a run is to do.
struct Work {
  Suite suite;
  bool fuzzing = false;
  std::function<bool(const verify::Case&)> wanted;  ///< --filter
  std::vector<verify::OracleQuestion> oracles;
};

Work plan_work(const RunRequest& request, const verify::Participants& participants, std::uint64_t seed) {
  Work work;
  work.fuzzing = request.fuzz_seconds > 0;
  if (work.fuzzing) {
    if (!request.cases.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--time makes its cases as it goes, so it cannot be combined with --case");
    }
    (void)verify::suite_source(request.suite, {});  // its name is right
  }
  work.suite = choose_suite(request, participants, seed);
  work.wanted = make_filter(request.filter);
  if (work.fuzzing) {
    if (request.list_cases) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--list-cases lists a suite, but the cases of --time are made as they are run");
    }
    if (request.shard.count > 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--shard cuts a suite into parts, but the cases of --time are made as they are run");
    }
  } else {
    apply_filter(work.suite, work.wanted, request.filter);
    std::size_t i = 0;
    std::erase_if(work.suite.cases, [&](const verify::Case&) { return !request.shard.has(i++); });
  }
  // Oracles vary their own shapes: they belong to a whole run, not to chosen cases.
  if (!request.no_oracles && request.cases.empty() && request.filter.empty())
    work.oracles = verify::oracle_questions(participants.ready, {seed, request.repeats, true, request.shard});
  return work;
}

/// Asks everything; what is known so far, if it is interrupted.
void ask(const RunRequest& request, const verify::Participants& participants, const Work& work,
         std::span<const std::unique_ptr<verify::Judge>> judges, RunResult& result) {
  report::Progress progress("verify",
                            static_cast<std::int64_t>(work.oracles.size() + work.suite.cases.size()),
                            !request.output.quiet && !request.log_progress);
  ProgressLog log(request.log_progress && !request.output.quiet, work.oracles.size(), work.suite.cases);
  verify::RunHooks hooks;
  hooks.stop = cli::interrupted;
  hooks.fail_fast = request.fail_fast;
  hooks.step = [&](std::string_view what) {
    progress.step(what);
    log.step(what);
  };
  result.oracles = verify::run_oracles(work.oracles, request.repeats, hooks, judges);
  if (result.oracles.stopped || (request.fail_fast && result.oracles.failed > 0)) return;
  if (work.fuzzing) {
    result.cases =
        verify::run_fuzzer(verify::suite_source(request.suite, backends_of(participants)), result.seed,
                           request.fuzz_seconds, work.wanted, participants.ready, hooks, judges);
  } else {
    result.cases = verify::run_suite(work.suite.cases, participants.ready, hooks, judges);
  }
}

}  // namespace

int run(const RunRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& file : {request.junit, request.html})
    if (!file.empty()) verify::require_writable(file);
  load_plugins(request.plugins);
  const std::string names = participant_names(request.backends, request.peers);
  const verify::Participants participants = verify::choose_participants(names);
  if (participants.ready.empty()) {
    throw Error(ErrorCode::kDevice, "no backend can run on this machine",
                participants.left_out.empty() ? std::string() : participants.left_out.front().second);
  }
  RunResult result;
  result.seed = request.seed ? *request.seed : request.fuzz_seconds > 0 ? seed_of_clock() : 1;
  result.shard = request.shard;
  const Work work = plan_work(request, participants, result.seed);
  if (request.list_cases) {
    print_cases(work.suite);
    return cli::kOk;
  }
  const std::size_t questions = work.oracles.size() + work.suite.cases.size();
  std::vector<std::unique_ptr<verify::Judge>> judges =
      make_judges(request, names, work.fuzzing ? SIZE_MAX : questions);
  result.jobs = judges.size();
  ask(request, participants, work, judges, result);
  dismiss_helpers(judges);
  result.asked_for = {work.oracles.size(), work.suite.cases.size()};
  const bool stopped = result.cases.stopped || result.oracles.stopped;
  if (!request.no_shrink && !stopped)
    result.repros = reduce_failures(request, participants, result, *judges.front());
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!request.junit.empty())
    verify::write_file(request.junit, verify::to_junit(result.cases, result.oracles, work.suite.name));
  report::Document document =
      run_document(work.suite, participants, result, static_cast<std::size_t>(request.show));
  if (request.formulas) document.tables.push_back(formulas_table(result.cases, participants));
  if (!request.html.empty()) verify::write_file(request.html, run_html(document, result));
  cli::print(document, request.output);
  if (stopped) return cli::kInterrupted;
  if (result.cases.failed + result.oracles.failed > 0) return cli::kCheckFailed;
  return result.cases.passed + result.oracles.passed > 0 ? cli::kOk : cli::kMachine;
}

int list_oracles(const OraclesRequest& request) {
  cli::print(oracles_document(), request.output);
  return cli::kOk;
}

}  // namespace mla::verify_app
