// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>

#include "commands.hpp"
#include "mla/error.hpp"
#include "reduce.hpp"
#include "verify/judge.hpp"
#include "verify/junit.hpp"
#include "view.hpp"
#include "worker.hpp"

namespace mla::verify_app {
namespace {

using verify::Suite;

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
  std::vector<const Backend*> backends;
  for (const verify::Participant& p : participants.ready) backends.push_back(p.backend);
  return verify::make_suite(request.suite, backends, seed);
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

/// Backends and peers as one list of names.
std::string participant_names(const RunRequest& request) {
  std::string names = request.peers.empty() || request.backends != "all" ? request.backends : "";
  for (const std::string& peer : request.peers)
    names += fmt::format("{}peer:{}", names.empty() ? "" : ",", peer);
  return names;
}

}  // namespace

int run(const RunRequest& request) {
  load_plugins(request.plugins);
  const std::string names = participant_names(request);
  const verify::Participants participants = verify::choose_participants(names);
  if (participants.ready.empty()) {
    throw Error(ErrorCode::kDevice, "no backend can run on this machine",
                participants.left_out.empty() ? std::string() : participants.left_out.front().second);
  }
  const bool fuzzing = request.fuzz_seconds > 0;
  const std::uint64_t seed = request.seed ? *request.seed : fuzzing ? seed_of_clock() : 1;
  Suite suite = choose_suite(request, participants, seed);
  const auto wanted = make_filter(request.filter);
  if (!fuzzing) apply_filter(suite, wanted, request.filter);
  if (request.list_cases) {
    if (fuzzing) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--list-cases lists a suite, but the cases of --time are made as they are run");
    }
    print_cases(suite);
    return cli::kOk;
  }
  const std::unique_ptr<verify::Judge> judge =
      request.in_process ? std::make_unique<verify::LocalJudge>()
                         : make_isolated_judge(names, request.plugins, request.timeout);
  // Oracles vary their own shapes: they belong to a whole run, not to chosen cases.
  const bool oracles_wanted = !request.no_oracles && request.cases.empty() && request.filter.empty();
  const verify::OracleOptions asking{seed, request.repeats, true};
  verify::RunHooks hooks;
  hooks.stop = cli::interrupted;
  hooks.fail_fast = request.fail_fast;
  RunResult result;
  result.seed = seed;
  {
    std::int64_t asked = 0;
    if (oracles_wanted) {
      for (const verify::Participant& p : participants.ready) {
        asked +=
            static_cast<std::int64_t>(verify::oracle_shapes(p, asking).size() * verify::all_oracles().size());
      }
    }
    report::Progress progress("verify", asked + static_cast<std::int64_t>(suite.cases.size()),
                              !request.output.quiet);
    hooks.step = [&progress](std::string_view what) { progress.step(what); };
    if (oracles_wanted) result.oracles = verify::run_oracles(participants.ready, asking, hooks, *judge);
    const bool go_on = !result.oracles.stopped && !(request.fail_fast && result.oracles.failed > 0);
    if (go_on && fuzzing) {
      std::vector<const Backend*> backends;
      for (const verify::Participant& p : participants.ready) backends.push_back(p.backend);
      result.cases = verify::run_fuzzer(verify::suite_source(request.suite, backends), seed,
                                        request.fuzz_seconds, wanted, participants.ready, hooks, *judge);
    } else if (go_on) {
      result.cases = verify::run_suite(suite.cases, participants.ready, hooks, *judge);
    }
  }
  const bool stopped = result.cases.stopped || result.oracles.stopped;
  if (!request.no_shrink && !stopped) result.repros = reduce_failures(request, participants, result, *judge);
  if (!request.junit.empty())
    verify::write_file(request.junit, verify::to_junit(result.cases, result.oracles, suite.name));
  const report::Document document =
      run_document(suite, participants, result, static_cast<std::size_t>(request.show));
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
