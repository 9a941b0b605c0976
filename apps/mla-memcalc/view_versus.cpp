// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "plan/counterfactual.hpp"
#include "spec/values.hpp"
#include "view.hpp"

namespace mla::memcalc {

void add_versus(report::Document& document, const Question& question, const capacity::MemoryPlan& plan,
                const std::string& list, std::vector<capacity::Line>& lines) {
  report::Table table{.name = "versus", .title = "If it cached K and V heads", .columns = {}, .rows = {}};
  table.columns = {
      {.key = "attention", .title = "attention"},
      {.key = "cache_format", .title = "format"},
      {.key = "bytes_per_token", .title = "B a token, all layers", .precision = 1, .thousands = true},
      {.key = "ratio", .title = "ratio"},
      {.key = "layout", .title = "layout"},
      {.key = "sequences", .title = "sequences", .thousands = true},
      {.key = "longest_context", .title = "longest", .thousands = true},
      {.key = "how", .title = "how"}};
  const capacity::CacheCost cost =
      cache_cost(question.model, question.request.cache, question.request.engine);
  table.rows.push_back({std::string("as it is"), std::string(question.request.cache.name),
                        bytes_cell(capacity::bytes_of_token(cost)), 1.0, to_text(plan.layout), plan.sequences,
                        plan.longest_context, std::string()});
  const std::vector<capacity::Layout> layouts = simple_layouts(question);
  std::string sentence;
  for (const std::string& what : spec::parse_words(list, "--versus")) {
    const capacity::Counterfactual other =
        capacity::counterfactual(question.model, question.request, layouts, what);
    table.rows.push_back({other.name, other.format, bytes_cell(other.bytes_per_token), other.ratio,
                          to_text(other.layout), other.sequences, other.longest_context, other.line.formula});
    sentence +=
        fmt::format("{}{} would take {:.1f} times the bytes and hold {}", sentence.empty() ? "" : "; ",
                    other.name, other.ratio, counted(other.sequences, "sequence"));
    lines.push_back(other.line);
  }
  document.headline.push_back(sentence);
  document.tables.push_back(std::move(table));
}

}  // namespace mla::memcalc
