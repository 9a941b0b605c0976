// SPDX-License-Identifier: Apache-2.0
#include "reduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>

#include "mla/error.hpp"
#include "mla/version.hpp"
#include "verify/junit.hpp"
#include "verify/shrink.hpp"

namespace mla::verify_app {
namespace {

/// Seconds for each failure; what is reached by then is written.
constexpr std::chrono::duration<double> kPatience{180};

/// "repro.json" for the only backend, "repro-cpu-absorbed.json" where there are several.
std::string repro_path(const std::string& path, const std::string& backend, bool only) {
  if (only) return path;
  std::string name = backend;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '.'; }, '-');
  const std::filesystem::path p(path);
  return (p.parent_path() / fmt::format("{}-{}{}", p.stem().string(), name, p.extension().string())).string();
}

/// The first failure of each backend, worst first: a case rather than an oracle.
std::vector<verify::Repro> find_failures(const verify::Participants& participants, const RunResult& result) {
  std::vector<verify::Repro> failures;
  for (const verify::Participant& p : participants.ready) {
    const std::string name(p.backend->info().name);
    verify::Repro repro;
    repro.backend = name;
    for (const verify::Verdict* v : verify::worst_first(result.cases)) {
      if (v->outcome != verify::Outcome::kFailed || v->backend != name) continue;
      repro.found_as = v->c;
      repro.failure = v->failure;
      repro.finding = v->reason;
      break;
    }
    for (const verify::OracleVerdict& v : result.oracles.verdicts) {
      if (repro.failure != verify::Failure::kNone) break;
      if (v.outcome.outcome != verify::Outcome::kFailed || v.backend != name) continue;
      repro.oracle = v.oracle;
      repro.found_as = v.base;
      repro.failure = v.outcome.failure;
      repro.finding = v.outcome.reason;
    }
    if (repro.failure != verify::Failure::kNone) failures.push_back(std::move(repro));
  }
  return failures;
}

}  // namespace

std::vector<WrittenRepro> reduce_failures(const RunRequest& request, const verify::Participants& participants,
                                          const RunResult& result, verify::Judge& judge) {
  std::vector<WrittenRepro> written;
  std::vector<verify::Repro> failures = find_failures(participants, result);
  if (auto* isolated = dynamic_cast<verify::IsolatedJudge*>(&judge)) isolated->set_hurry(true);
  for (verify::Repro& repro : failures) {
    const verify::Participant& participant = *participants.find(repro.backend);
    const verify::Oracle* oracle = repro.oracle.empty() ? nullptr : &verify::get_oracle(repro.oracle);
    report::Progress progress("shrink", 0, !request.output.quiet);
    const auto start = std::chrono::steady_clock::now();
    verify::ShrinkOptions options;
    options.stop = [start] {
      return cli::interrupted() || std::chrono::steady_clock::now() - start > kPatience;
    };
    options.progress = [&progress](const verify::Case& c, int) { progress.step(to_text(c)); };
    const verify::Shrunk shrunk =
        verify::shrink(repro.found_as, {repro.failure, repro.finding},
                       verify::failing_on(judge, participant, oracle,
                                          verify::repeats_for(*participant.backend, request.repeats)),
                       options);
    repro.c = shrunk.c;
    repro.finding = shrunk.finding.reason;
    repro.version = build_info().version;
    for (const std::string& file : request.plugins)
      repro.plugins.push_back(std::filesystem::absolute(file).string());
    const std::string path = repro_path(request.repro, repro.backend, failures.size() == 1);
    std::string problem;
    try {
      verify::write_file(path, verify::to_json(repro, path));
    } catch (const Error& e) {
      problem = e.what();  // what the run found is worth more than this file
    }
    written.push_back({repro, path, shrunk.tried, shrunk.stopped, problem});
  }
  return written;
}

}  // namespace mla::verify_app
