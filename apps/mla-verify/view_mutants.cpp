// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "view.hpp"

namespace mla::verify_app {

report::Document mutants_document(const verify::MutationRun& run, const verify::IdealRun& ideal) {
  report::Document document;
  document.kind = "verify.mutants";
  const auto total = static_cast<std::int64_t>(run.verdicts.size());
  const auto alarms = static_cast<std::int64_t>(ideal.alarms.size());
  document.headline = {fmt::format("{} of {} wrong kernels are caught", run.killed, total)};
  document.facts = {{"mutants", total}, {"killed", run.killed}};
  if (ideal.seeds > 0) {
    document.headline.push_back(fmt::format(
        "{} false alarms in {} judgements of ideal kernels over {} random cases (worst {:.0f} % of budget)",
        alarms, ideal.judged, ideal.seeds, 100 * ideal.worst_share));
    document.facts.insert(
        document.facts.end(),
        {{"ideal_seeds", ideal.seeds}, {"ideal_judged", ideal.judged}, {"false_alarms", alarms}});
  }
  report::Table table;
  table.name = "mutants";
  table.title = "Mutants: what is wrong with each, and what caught it";
  table.columns = {{"verdict", "verdict"},     {"mutant", "mutant"}, {"fault", "fault"},
                   {"source", "public fault"}, {"asked", "asked"},   {"killer", "caught by"},
                   {"reason", "finding"}};
  for (const verify::MutantVerdict& v : run.verdicts) {
    table.rows.push_back({std::string(v.killed ? "caught" : "ALIVE"), std::string(v.mutant.name),
                          std::string(v.mutant.fault), std::string(v.mutant.source), v.asked, v.killer,
                          v.reason});
  }
  document.tables.push_back(std::move(table));
  for (const verify::FalseAlarm& alarm : ideal.alarms) {
    document.notes.push_back(fmt::format("FALSE ALARM: ideal kernel '{}' on {}: {}", alarm.profile,
                                         to_text(alarm.c), alarm.reason));
  }
  return document;
}

}  // namespace mla::verify_app
