// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "figures.hpp"
#include "mla/error.hpp"
#include "plan/plan_request.hpp"
#include "plan/plan_warnings.hpp"
#include "plan/search.hpp"
#include "remedies.hpp"
#include "spec/values.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::Layout;
using capacity::MemoryPlan;
using report::Cell;

/// Layouts people ask about by name; they are shown wherever they rank.
bool well_known(const Layout& layout) {
  const auto gpus = layout.gpus();
  const bool heads = layout.tp == gpus && (layout.dcp == 1 || layout.dcp == layout.tp);
  const bool replicas = layout.dp == gpus;
  const bool two_stages = layout.pp == 2 && layout.tp * 2 == gpus && layout.dcp == 1;
  return heads || replicas || two_stages;
}

std::vector<std::size_t> shown_rows(const std::vector<MemoryPlan>& plans, std::int64_t top) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (top == 0 || static_cast<std::int64_t>(i) < top || well_known(plans[i].layout)) rows.push_back(i);
  }
  return rows;
}

std::string headline(const Question& question, const std::vector<MemoryPlan>& plans) {
  const MemoryPlan& best = plans.front();
  const std::string where =
      fmt::format("{}, {}", setting(question), context_text(question.model, best.context));
  if (best.sequences == 0) return fmt::format("{}: no layout holds one sequence", where);
  const bool capped =
      std::ranges::any_of(plans, [](const MemoryPlan& plan) { return plan.at_once < plan.sequences; });
  const std::string holds = best.at_once < best.sequences
                                ? fmt::format("it holds {}, ", report::with_thousands(best.sequences))
                                : "";
  const std::string most =
      capped ? fmt::format("{} runs most at once, {} ({}{} is {} a replica)", to_text(best.layout),
                           counted(best.at_once, "sequence"), holds, batch_limit(question.request).name,
                           report::with_thousands(batch_limit(question.request).sequences))
             : fmt::format("{} holds most, {}", to_text(best.layout), counted(best.sequences, "sequence"));
  const std::int64_t wanted = question.request.concurrency;
  if (wanted == 0) return fmt::format("{}: {}", where, most);
  const auto enough = std::ranges::count_if(plans, [](const MemoryPlan& plan) { return plan.fits; });
  const char* verb = capped ? "run" : "hold";
  if (enough == 0)
    return fmt::format("{}: no layout {}s {}; {}", where, verb, counted(wanted, "sequence"), most);
  return fmt::format("{}: {} of {} layouts {} {}; {}", where, enough, plans.size(), verb,
                     counted(wanted, "sequence"), most);
}

/// The trap an MLA planner exists for, with this model's numbers.
std::string replication(const Question& question, const std::vector<MemoryPlan>& plans) {
  const auto heads = std::ranges::find_if(plans, [](const MemoryPlan& plan) {
    return plan.layout.tp == plan.layout.gpus() && plan.layout.dcp == 1 && plan.layout.tp > 1;
  });
  if (heads == plans.end() || latent_copies(question, heads->layout) <= 1) return {};
  return fmt::format(
      "warning: {} keeps the same latent rows on all {} ranks (MLA has one latent head) and holds {}; "
      "'copies' counts the ranks of a replica that do",
      to_text(heads->layout), heads->layout.tp, counted(heads->sequences, "sequence"));
}

}  // namespace

Answer compare_answer(const Options& options) {
  Question question = read_question(options.request);
  if (question.narrowed()) {
    throw Error(ErrorCode::kInvalidArgument, "compare tries all layouts, but one of them is given by flags",
                "leave out --attention, --tp, --dp, --pp, --dcp, --ep and --stages, or use plan");
  }
  const std::int64_t top = spec::parse_count(options.top, "--top");
  const std::vector<MemoryPlan> plans =
      rank_layouts(question.model, question.request, candidate_layouts(question));
  Answer answer;
  answer.fits = plans.front().fits;
  report::Document& document = answer.document;
  document.kind = "memcalc.compare";
  document.headline.push_back(headline(question, plans));
  if (std::string ways = remedies(question, plans.front()); !ways.empty())
    document.headline.push_back(std::move(ways));
  const std::vector<std::size_t> rows = shown_rows(plans, top);
  report::Table table = plans_table(plans, rows);
  table.columns.insert(table.columns.begin(), {.key = "rank", .title = "rank"});
  table.columns.push_back({.key = "latent_copies", .title = "copies"});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    table.rows[i].insert(table.rows[i].begin(), Cell(static_cast<std::int64_t>(rows[i]) + 1));
    table.rows[i].emplace_back(latent_copies(question, plans[rows[i]].layout));
  }
  document.tables.push_back(std::move(table));
  add_warnings(document, question.warnings);
  add_warnings(document, capacity::setting_warnings(question.model, question.request));
  if (const std::string warning = replication(question, plans); !warning.empty())
    document.notes.push_back(warning);
  if (top > 0 && static_cast<std::int64_t>(rows.size()) > top) {
    document.notes.push_back(fmt::format(
        "below rank {}: layouts people ask about by name (TPn, TPn+DCPn, DPn, PP2xTPn/2), wherever they rank",
        top));
  }
  if (plans.size() > rows.size()) {
    document.notes.push_back(
        fmt::format("{} not shown (--top 0 shows all)",
                    counted(static_cast<std::int64_t>(plans.size() - rows.size()), "more layout")));
  }
  document.notes.emplace_back(
      "most sequences at once first; speed is another question: more replicas read more weights a token, dcp "
      "and tp "
      "talk more");
  if (draws(options)) document.figure = compare_figure(question, plans, rows);
  if (options.formulas) document.tables.push_back(formulas_table(all_lines(plans.front())));
  return answer;
}

}  // namespace mla::memcalc
