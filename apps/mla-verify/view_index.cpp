// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "view.hpp"

namespace mla::verify_app {

report::Document index_document(std::span<const verify::IndexOutcome> outcomes,
                                const std::string& no_device) {
  report::Document document;
  document.kind = "verify.index";
  report::Table table;
  table.name = "checks";
  table.title = "Checks";
  table.columns = {{"verdict", "verdict"}, {"check", "check"},     {"indexer", "indexer"},
                   {"cases", "cases"},     {"expects", "expects"}, {"finding", "finding"}};
  std::int64_t failed = 0;
  for (const verify::IndexOutcome& o : outcomes) {
    std::string expects;
    for (const verify::IndexCheck& check : verify::index_checks()) {
      if (check.name == o.check) expects = check.expects;
    }
    failed += o.finding.empty() ? 0 : 1;
    table.rows.push_back({std::string(o.finding.empty() ? "pass" : "FAIL"), std::string(o.check),
                          std::string(o.indexer), o.cases, expects, o.finding});
    if (!o.finding.empty()) {
      document.notes.push_back(fmt::format("FAIL {} ({}): {}; again: mla-verify index --cases 1 --seed {}",
                                           o.check, o.indexer, o.finding, o.seed));
    }
  }
  if (!no_device.empty()) document.notes.push_back(fmt::format("no device indexer: {}", no_device));
  document.headline = {fmt::format("{}: {} of {} checks hold", failed > 0 ? "FAIL" : "PASS",
                                   static_cast<std::int64_t>(outcomes.size()) - failed, outcomes.size())};
  document.facts = {{"checks", static_cast<std::int64_t>(outcomes.size())}, {"checks_failed", failed}};
  document.tables.push_back(std::move(table));
  return document;
}

}  // namespace mla::verify_app
