// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "commands.hpp"
#include "mla/error.hpp"
#include "view.hpp"

namespace mla::verify_app {
namespace {

using verify::Suite;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in && !in.eof()) throw Error(ErrorCode::kIo, fmt::format("{} cannot be read", path));
  return text;
}

Suite choose_suite(const RunRequest& request, const verify::Participants& participants) {
  Suite suite;
  if (!request.cases.empty()) {
    suite.name = "given";
    for (const std::string& text : request.cases) {
      suite.cases.push_back(verify::parse_case(text));
      validate(suite.cases.back());
    }
    return suite;
  }
  const std::vector<std::string> names = verify::suite_names();
  if (std::ranges::find(names, request.suite) == names.end() && std::ifstream(request.suite)) {
    suite.name = request.suite;
    suite.cases = verify::parse_cases(read_file(request.suite), request.suite);
    return suite;
  }
  std::vector<const Backend*> backends;
  for (const verify::Participant& p : participants.ready) backends.push_back(p.backend);
  return verify::make_suite(request.suite, backends, request.seed);
}

void apply_filter(Suite& suite, const std::string& pattern) {
  if (pattern.empty()) return;
  std::regex regex;
  try {
    regex.assign(pattern, std::regex::ECMAScript);
  } catch (const std::regex_error& e) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--filter '{}' is not a regular expression: {}", pattern, e.what()));
  }
  std::erase_if(suite.cases, [&](const verify::Case& c) { return !std::regex_search(to_text(c), regex); });
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

/// Backends and peers as one list of names.
std::string participant_names(const RunRequest& request) {
  std::string names = request.peers.empty() || request.backends != "all" ? request.backends : "";
  for (const std::string& peer : request.peers)
    names += fmt::format("{}peer:{}", names.empty() ? "" : ",", peer);
  return names;
}

}  // namespace

int run(const RunRequest& request) {
  const verify::Participants participants = verify::choose_participants(participant_names(request));
  if (participants.ready.empty()) {
    throw Error(ErrorCode::kDevice, "no backend can run on this machine",
                participants.left_out.empty() ? std::string() : participants.left_out.front().second);
  }
  Suite suite = choose_suite(request, participants);
  apply_filter(suite, request.filter);
  if (request.list_cases) {
    print_cases(suite);
    return cli::kOk;
  }
  // Oracles vary their own shapes: they belong to a whole run, not to chosen cases.
  const bool oracles_wanted = !request.no_oracles && request.cases.empty() && request.filter.empty();
  const verify::OracleOptions asking{request.seed, request.repeats, true};
  verify::RunHooks hooks;
  hooks.stop = cli::interrupted;
  hooks.fail_fast = request.fail_fast;
  verify::OracleRun oracles;
  verify::SuiteRun result;
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
    if (oracles_wanted) oracles = verify::run_oracles(participants.ready, asking, hooks);
    const bool go_on = !oracles.stopped && !(request.fail_fast && oracles.failed > 0);
    if (go_on) result = verify::run_suite(suite.cases, participants.ready, hooks);
  }
  if (!request.junit.empty()) verify::write_file(request.junit, verify::to_junit(result, suite.name));
  cli::print(run_document(suite, participants, result, oracles, request.seed,
                          static_cast<std::size_t>(request.show)),
             request.output);
  if (result.stopped || oracles.stopped) return cli::kInterrupted;
  if (result.failed + oracles.failed > 0) return cli::kCheckFailed;
  return result.passed + oracles.passed > 0 ? cli::kOk : cli::kMachine;
}

int list_oracles(const OraclesRequest& request) {
  cli::print(oracles_document(), request.output);
  return cli::kOk;
}

}  // namespace mla::verify_app
