// SPDX-License-Identifier: Apache-2.0
#include "plan/examples.hpp"
#include "view.hpp"

namespace mla::memcalc {

Answer examples_answer(const Options& options) {
  Answer answer;
  report::Document& document = answer.document;
  document.kind = "memcalc.examples";
  document.headline = {
      "The worked numbers of the two source documents (a walk through vLLM's MLA backends; \"003\": why Q, K "
      "and V "
      "widths differ),",
      "each as printed, as its own arithmetic gives it, and corrected from the models' configs."};
  report::Table table{.name = "examples", .title = "Documents' examples", .columns = {}, .rows = {}};
  table.columns = {{.key = "place", .title = "where"},
                   {.key = "subject", .title = "what"},
                   {.key = "document_prints", .title = "document prints"},
                   {.key = "document_computes", .title = "document's arithmetic"},
                   {.key = "corrected", .title = "corrected"}};
  if (options.formulas) {
    table.columns.push_back({.key = "formula", .title = "corrected arithmetic"});
  }
  table.columns.push_back({.key = "why", .title = "why"});
  for (const capacity::Example& example :
       capacity::document_examples(load_model("deepseek-v3"), load_model("kimi-k2"))) {
    std::vector<report::Cell> row{example.place, example.subject, example.printed, example.document,
                                  example.corrected};
    if (options.formulas) row.emplace_back(example.corrected_formula);
    row.emplace_back(example.why);
    table.rows.push_back(std::move(row));
  }
  document.tables.push_back(std::move(table));
  return answer;
}

}  // namespace mla::memcalc
