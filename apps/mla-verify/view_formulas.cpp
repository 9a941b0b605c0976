// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "mla/numerics.hpp"
#include "verify/expected.hpp"
#include "verify/limits_file.hpp"
#include "view.hpp"

namespace mla::verify_app {
namespace {

using report::Cell;
using verify::Outcome;
using verify::Verdict;

/// The verdict whose budget is worth showing: of each backend the worst that could be compared.
std::vector<const Verdict*> worst_of_each(const verify::SuiteRun& run) {
  std::vector<const Verdict*> found;
  std::set<std::string> seen;
  for (const Verdict* v : verify::worst_first(run)) {
    if (v->outcome == Outcome::kUnsupported || v->report.worst_row < 0) continue;
    if (seen.insert(v->backend).second) found.push_back(v);
  }
  return found;
}

}  // namespace

report::Table formulas_table(const verify::SuiteRun& run, const verify::Participants& participants) {
  report::Table table;
  table.name = "formulas";
  table.title = "What the worst row of each backend may be off by (docs/numerics.md has the symbols)";
  table.columns = {{"backend", "backend"},
                   {"case", "case"},
                   {"row", "row"},
                   {"term", "term"},
                   {"value", "value", 3, false, true},
                   {"formula", "formula", 2, false, false, true},
                   {"numbers", "with numbers", 2, false, false, true}};
  for (const Verdict* v : worst_of_each(run)) {
    const verify::Participant* const participant = participants.find(v->backend);
    if (participant == nullptr) continue;
    const Backend* const backend = participant->backend;
    const verify::Problem problem(v->c);
    verify::Expected expected(problem);
    const AttentionShape& shape = problem.shape();
    const auto r = static_cast<std::size_t>(v->report.worst_row);
    const auto width = static_cast<std::size_t>(verify::output_width(shape));
    const std::string_view strategy = backend->info().strategy;
    const std::span<const double> want = std::span(expected.result(strategy).out).subspan(r * width, width);
    const std::string place =
        fmt::format("token {}, head {}", r / static_cast<std::size_t>(shape.dims.num_heads),
                    r % static_cast<std::size_t>(shape.dims.num_heads));
    const auto line = [&](std::string term, double value, std::string formula, std::string numbers) {
      table.rows.push_back({v->backend, to_text(v->c), place, std::move(term), Cell(value),
                            std::move(formula), std::move(numbers)});
    };
    double sum = 0;
    for (const BudgetTerm& term :
         budget_terms(expected.stats(strategy)[r], backend->rounding(shape), shape,
                      problem.values().softmax_scale, want, verify::active_limits())) {
      sum += term.max;
      line(std::string(name_of(term.source)), term.max, term.formula, term.numbers);
    }
    line("budget of an element", sum, "the sum of the terms", "");
    const double lse = row_budget(expected.stats(strategy)[r], backend->rounding(shape), shape,
                                  problem.values().softmax_scale, want, expected.result(strategy).lse[r],
                                  verify::active_limits())
                           .lse;
    line("budget of the LSE", lse,
         "ds + u walk(N) + z sd + u_lse |LSE|, + u_P if it is summed from rounded P", "");
    const ErrorReport& report = v->report;
    if (report.stage == "max" && std::isfinite(report.budget_share)) {
      const double error = std::abs(report.worst_got - report.worst_want);
      line("its largest error", error, "|got - want|",
           fmt::format("|{:.7g} - {:.7g}|: {:.3g} % of the budget beyond half a place", report.worst_got,
                       report.worst_want, 100 * report.budget_share));
    } else {
      line("its share of a limit", report.budget_share,
           fmt::format("the row's worst is its {}", report.stage), "");
    }
  }
  return table;
}

}  // namespace mla::verify_app
