// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "view.hpp"

namespace mla::verify_app {
namespace {

using verify::Capability;

/// One row an aspect: which levels hold, which are refused, and where it does not do as it says.
report::Table aspects_table(const verify::CapabilityRun& run) {
  report::Table table;
  table.name = "capabilities";
  table.title = "Capabilities, each tried";
  table.columns = {{"backend", "backend"},
                   {"aspect", "aspect"},
                   {"supported", "says yes, and it is right"},
                   {"refused", "says no, and refuses"},
                   {"untrue", "NOT AS IT SAYS"}};
  std::vector<std::string> levels[3];
  const auto flush = [&](const Capability& last) {
    std::vector<report::Cell> row{last.backend, last.aspect};
    for (std::vector<std::string>& list : levels) {
      row.emplace_back(list.empty() ? "-" : fmt::format("{}", fmt::join(list, ", ")));
      list.clear();
    }
    table.rows.push_back(std::move(row));
  };
  for (std::size_t i = 0; i < run.list.size(); ++i) {
    const Capability& c = run.list[i];
    levels[!c.true_claim ? 2 : c.claimed ? 0 : 1].push_back(c.level);
    if (i + 1 == run.list.size() || run.list[i + 1].aspect != c.aspect ||
        run.list[i + 1].backend != c.backend)
      flush(c);
  }
  return table;
}

report::Table details_table(const verify::CapabilityRun& run) {
  report::Table table;
  table.name = "refusals";
  table.title = "What is refused or untrue, and why";
  table.columns = {{"backend", "backend"}, {"aspect", "aspect"}, {"level", "level"},
                   {"answer", "answer"},   {"detail", "detail"}, {"case", "case"}};
  for (const Capability& c : run.list) {
    if (c.claimed && c.true_claim) continue;
    table.rows.push_back({c.backend, c.aspect, c.level, std::string(c.true_claim ? "refuses" : "UNTRUE"),
                          c.detail, to_text(c.c)});
  }
  return table;
}

}  // namespace

report::Document capabilities_document(const verify::CapabilityRun& run,
                                       const verify::Participants& participants) {
  report::Document document;
  document.kind = "verify.capabilities";
  const auto asked = static_cast<std::int64_t>(run.list.size());
  document.headline = {fmt::format("{}: {} of {} claims of {} backends are true, each tried",
                                   run.untrue == 0 ? "PASS" : "FAIL", asked - run.untrue, asked,
                                   participants.ready.size())};
  document.facts = {{"claims", asked}, {"untrue", run.untrue}};
  document.tables.push_back(aspects_table(run));
  document.tables.push_back(details_table(run));
  for (const auto& [name, reason] : participants.left_out)
    document.notes.push_back(fmt::format("{} was left out: {}", name, reason));
  return document;
}

}  // namespace mla::verify_app
