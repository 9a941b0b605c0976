// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "plan/counterfactual.hpp"
#include "spec/values.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

double ratio_in_bf16(const Question& question, const std::vector<capacity::Layout>& layouts,
                     const std::string& what) {
  capacity::PlanRequest request = question.request;
  request.cache = capacity::find_kv_format("bf16");
  return capacity::counterfactual(question.model, request, layouts, what).ratio;
}

}  // namespace

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
  const std::vector<capacity::Layout> layouts = candidate_layouts(question);
  std::string sentence;
  std::string in_bf16;
  for (const std::string& what : spec::parse_words(list, "--versus")) {
    const capacity::Counterfactual other =
        capacity::counterfactual(question.model, question.request, layouts, what);
    table.rows.push_back({other.name, other.format, bytes_cell(other.bytes_per_token), other.ratio,
                          to_text(other.layout), other.sequences, other.longest_context, other.line.formula});
    sentence +=
        fmt::format("{}{} would take {:.1f} times the bytes and hold {}", sentence.empty() ? "" : "; ",
                    other.name, other.ratio, counted(other.sequences, "sequence"));
    constexpr double kShown = 0.05;
    const double plain = ratio_in_bf16(question, layouts, what);
    if (std::abs(plain - other.ratio) >= kShown)
      in_bf16 += fmt::format("{}{} {:.1f} times", in_bf16.empty() ? "" : ", ", other.name, plain);
    lines.push_back(other.line);
  }
  document.headline.push_back(sentence);
  if (!in_bf16.empty()) {
    document.notes.push_back(fmt::format(
        "ratios are between caches as stored; scales and a bf16 rope do not shrink with {}. All in bf16: {}",
        question.request.cache.name, in_bf16));
  }
  document.tables.push_back(std::move(table));
}

}  // namespace mla::memcalc
