// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <numeric>

#include "view.hpp"

namespace mla::verify_app {
namespace {

using report::Cell;
using verify::Outcome;
using verify::Verdict;

report::Table verdicts_table(const verify::SuiteRun& run, std::size_t passing_shown) {
  report::Table table;
  table.name = "cases";
  table.title = "Cases, worst first";
  table.columns = {{"verdict", "verdict"},
                   {"backend", "backend"},
                   {"budget_percent", "% of budget", 1},
                   {"case", "case"},
                   {"finding", "worst place"}};
  std::size_t passing = 0;
  for (const Verdict* v : verify::worst_first(run)) {
    if (v->outcome == Outcome::kUnsupported) break;
    if (v->outcome == Outcome::kPassed && ++passing > passing_shown) break;
    const double share = v->share();
    const std::string finding =
        v->outcome == Outcome::kFailed ? v->reason : to_text(v->report, v->c.shape.dims.num_heads);
    table.rows.push_back({std::string(name_of(v->outcome)), v->backend,
                          std::isfinite(share) ? Cell(100 * share) : Cell(std::string("-")), to_text(v->c),
                          finding});
  }
  return table;
}

report::Table backends_table(const verify::SuiteRun& run, const verify::OracleRun& oracles) {
  struct Counts {
    std::int64_t passed = 0, failed = 0, unsupported = 0, oracles = 0, oracles_failed = 0;
    double worst = 0;
  };
  std::map<std::string, Counts> counts;
  for (const Verdict& v : run.verdicts) {
    Counts& c = counts[v.backend];
    c.passed += v.outcome == Outcome::kPassed ? 1 : 0;
    c.failed += v.outcome == Outcome::kFailed ? 1 : 0;
    c.unsupported += v.outcome == Outcome::kUnsupported ? 1 : 0;
    if (v.outcome != Outcome::kUnsupported) c.worst = std::max(c.worst, v.share());
  }
  for (const verify::OracleVerdict& v : oracles.verdicts) {
    Counts& c = counts[v.backend];
    if (v.outcome.outcome == Outcome::kUnsupported) continue;
    ++c.oracles;
    c.oracles_failed += v.outcome.outcome == Outcome::kFailed ? 1 : 0;
  }
  report::Table table;
  table.name = "backends";
  table.title = "Backends";
  table.columns = {{"backend", "backend"},
                   {"passed", "passed"},
                   {"failed", "FAILED"},
                   {"unsupported", "unsupported"},
                   {"worst_budget_percent", "worst % of budget", 1},
                   {"oracles", "oracles asked"},
                   {"oracles_failed", "oracles FAILED"}};
  for (const auto& [name, c] : counts) {
    table.rows.push_back({name, c.passed, c.failed, c.unsupported,
                          std::isfinite(c.worst) ? Cell(100 * c.worst) : Cell(std::string("-")), c.oracles,
                          c.oracles_failed});
  }
  return table;
}

/// How far elements lie from the reference rounded to the output's type. Not what is judged: a place is much of a
/// small budget and nothing of a large one.
report::Table ulps_table(const verify::SuiteRun& run) {
  std::map<std::pair<std::string, std::string>, UlpCounts> counts;
  for (const Verdict& v : run.verdicts) {
    if (v.outcome == Outcome::kUnsupported || v.report.rows == 0) continue;
    UlpCounts& all = counts[{v.backend, std::string(name_of(v.c.shape.out_dtype))}];
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += v.report.ulps[i];
  }
  report::Table table;
  table.name = "ulps";
  table.title = "Elements by places of the output type between them and the rounded reference, %";
  table.columns = {{"backend", "backend"}, {"out", "out"}, {"elements", "elements", 2, true}};
  for (std::size_t i = 0; i < kUlpBins.size(); ++i) {
    const bool one = i == 0 || kUlpBins[i] == kUlpBins[i - 1] + 1;
    table.columns.push_back(
        {fmt::format("percent_to_{:g}", kUlpBins[i]),
         one ? fmt::format("{:g}", kUlpBins[i]) : fmt::format("{:g}-{:g}", kUlpBins[i - 1] + 1, kUlpBins[i]),
         2});
  }
  table.columns.push_back({"percent_beyond", "more", 2});
  for (const auto& [who, bins] : counts) {
    const std::int64_t elements = std::accumulate(bins.begin(), bins.end(), std::int64_t{0});
    if (elements == 0) continue;
    std::vector<Cell> row = {who.first, who.second, elements};
    for (const std::int64_t n : bins)
      row.emplace_back(100.0 * static_cast<double>(n) / static_cast<double>(elements));
    table.rows.push_back(std::move(row));
  }
  return table;
}

report::Table failed_oracles_table(const verify::OracleRun& oracles) {
  report::Table table;
  table.name = "failed_oracles";
  table.title = "Oracles that fail";
  table.columns = {{"oracle", "oracle"}, {"backend", "backend"}, {"finding", "finding"}, {"case", "case"}};
  for (const verify::OracleVerdict& v : oracles.verdicts) {
    if (v.outcome.outcome != Outcome::kFailed) continue;
    table.rows.push_back({std::string(v.oracle), v.backend, v.outcome.reason, to_text(v.base)});
  }
  return table;
}

/// What the suite's design promises and could not keep, each with what stands against it.
void note_left_out(const verify::Suite& suite, std::vector<std::string>& notes) {
  for (const verify::PairLeftOut& pair : suite.left_out)
    notes.push_back(fmt::format("no case has both {} and {}: {}", pair.first, pair.second, pair.why));
}

/// Why cases were not supported: each reason once, with how often.
void note_unsupported(const verify::SuiteRun& run, std::vector<std::string>& notes) {
  std::map<std::pair<std::string, std::string>, int> reasons;
  for (const Verdict& v : run.verdicts) {
    if (v.outcome == Outcome::kUnsupported) ++reasons[{v.backend, v.reason}];
  }
  for (const auto& [key, n] : reasons) {
    notes.push_back(fmt::format("{} left out {} case{}: {}", key.first, n, n == 1 ? "" : "s", key.second));
  }
}

/// What oracles found out beside their answer, once a backend.
void note_remarks(const verify::OracleRun& oracles, std::vector<std::string>& notes) {
  std::map<std::string, std::pair<int, std::string>> remarks;
  for (const verify::OracleVerdict& v : oracles.verdicts) {
    if (v.outcome.outcome != Outcome::kPassed || v.outcome.reason.empty()) continue;
    auto& [n, first] = remarks[v.backend];
    if (++n == 1) first = v.outcome.reason;
  }
  for (const auto& [backend, remark] : remarks) {
    notes.push_back(fmt::format("{}, on {} shape{}: {}", backend, remark.first, remark.first == 1 ? "" : "s",
                                remark.second));
  }
}

report::Table repros_table(std::span<const WrittenRepro> repros) {
  report::Table table;
  table.name = "reduced";
  table.title = "Failures reduced to the smallest that still fails in the same way";
  table.columns = {{"backend", "backend"},   {"failure", "failure"}, {"oracle", "oracle"},
                   {"case", "case"},         {"finding", "finding"}, {"tried", "tried"},
                   {"smallest", "smallest"}, {"file", "file"}};
  for (const WrittenRepro& r : repros) {
    table.rows.push_back({r.repro.backend, std::string(name_of(r.repro.failure)),
                          r.repro.oracle.empty() ? Cell(std::string("-")) : Cell(r.repro.oracle),
                          to_text(r.repro.c), r.repro.finding, std::int64_t{r.tried},
                          std::string(r.stopped ? "not known: stopped" : "yes"), r.path});
  }
  return table;
}

}  // namespace

report::Document run_document(const verify::Suite& suite, const verify::Participants& participants,
                              const RunResult& result, std::size_t passing_shown) {
  const verify::SuiteRun& run = result.cases;
  const verify::OracleRun& oracles = result.oracles;
  report::Document document;
  document.kind = "verify.run";
  const std::int64_t failed = run.failed + oracles.failed;
  document.headline = {
      fmt::format("{}: {} of {} judged cases pass, {} of {} oracles hold, {} cases not supported ({:.1f} s)",
                  failed == 0 ? "PASS" : "FAIL", run.passed, run.passed + run.failed, oracles.passed,
                  oracles.passed + oracles.failed, run.unsupported, result.seconds)};
  const std::size_t cases_asked = static_cast<std::size_t>(run.cases);
  if (oracles.verdicts.size() < result.asked_for.oracles || cases_asked < result.asked_for.cases) {
    document.headline.push_back(fmt::format("NOT COMPLETE: {} of {} oracles and {} of {} cases were asked",
                                            oracles.verdicts.size(), result.asked_for.oracles, cases_asked,
                                            result.asked_for.cases));
  }
  document.facts = {{"suite", suite.name},
                    {"seed", static_cast<std::int64_t>(result.seed)},
                    {"shard", fmt::format("{}/{}", result.shard.index + 1, result.shard.count)},
                    {"jobs", static_cast<std::int64_t>(result.jobs)},
                    {"seconds", result.seconds},
                    {"cases", run.cases},
                    {"passed", run.passed},
                    {"failed", run.failed},
                    {"unsupported", run.unsupported},
                    {"oracles_passed", oracles.passed},
                    {"oracles_failed", oracles.failed},
                    {"oracles_not_applicable", oracles.unsupported}};
  if (suite.pairs > 0) {
    document.facts.emplace_back("pairs", suite.pairs);
    document.facts.emplace_back("pairs_covered", suite.covered);
  }
  document.tables.push_back(backends_table(run, oracles));
  if (report::Table ulps = ulps_table(run); !ulps.rows.empty()) document.tables.push_back(std::move(ulps));
  if (oracles.failed > 0) document.tables.push_back(failed_oracles_table(oracles));
  if (!result.repros.empty()) document.tables.push_back(repros_table(result.repros));
  document.tables.push_back(verdicts_table(run, passing_shown));
  int shown = 0;
  for (const Verdict* v : verify::worst_first(run)) {
    if (v->outcome != Outcome::kFailed || ++shown > 5) break;
    document.notes.push_back(fmt::format("again: {}", verify::rerun_command(*v)));
  }
  for (const WrittenRepro& r : result.repros) {
    document.notes.push_back(r.problem.empty()
                                 ? fmt::format("reduced: mla-verify run --replay {}", r.path)
                                 : fmt::format("reduced, but {}: mla-verify run --backends {} --case '{}'",
                                               r.problem, r.repro.backend, to_text(r.repro.c)));
  }
  note_left_out(suite, document.notes);
  note_unsupported(run, document.notes);
  note_remarks(oracles, document.notes);
  for (const auto& [name, reason] : participants.left_out) {
    document.notes.push_back(fmt::format("{} was left out: {}", name, reason));
  }
  return document;
}

report::Document replay_document(const verify::Repro& repro, const Verdict& verdict) {
  const bool fails = verdict.outcome == Outcome::kFailed;
  const bool same = fails && verdict.failure == repro.failure;
  report::Document document;
  document.kind = "verify.replay";
  document.headline = {
      same    ? fmt::format("FAIL: it fails as before ({})", name_of(repro.failure))
      : fails ? fmt::format("FAIL: it fails otherwise ({}, before {})", name_of(verdict.failure),
                            name_of(repro.failure))
              : fmt::format("{}: it failed before ({})", name_of(verdict.outcome), name_of(repro.failure))};
  document.facts = {{"backend", repro.backend},
                    {"oracle", repro.oracle.empty() ? Cell() : Cell(repro.oracle)},
                    {"case", to_text(repro.c)},
                    {"outcome", std::string(name_of(verdict.outcome))},
                    {"failure", std::string(name_of(verdict.failure))},
                    {"same_failure", same},
                    {"finding", verdict.reason},
                    {"finding_before", repro.finding}};
  return document;
}

report::Document oracles_document() {
  report::Document document;
  document.kind = "verify.oracles";
  report::Table table;
  table.name = "oracles";
  table.title = "Checks that need no reference, or no tolerance";
  table.columns = {{"oracle", "oracle"}, {"expectation", "expectation"}};
  for (const verify::Oracle& oracle : verify::all_oracles()) {
    table.rows.push_back({std::string(oracle.name), std::string(oracle.expectation)});
  }
  document.tables.push_back(std::move(table));
  return document;
}

}  // namespace mla::verify_app
