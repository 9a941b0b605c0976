// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "plan/cases.hpp"
#include "spec/capacity_cases.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::CaseResult;
using capacity::Verdict;

std::string number_text(double value) {
  constexpr double kWhole = 9e15;
  if (std::floor(value) == value && std::abs(value) < kWhole) {
    return report::with_thousands(static_cast<std::int64_t>(value));
  }
  return fmt::format("{:.4f}", value);
}

/// "715,008..715,136" where a logged input was rounded.
std::string computed_text(const CaseResult& result) {
  if (result.verdict == Verdict::kUnknown) return {};
  const std::string low = number_text(result.got.low);
  const std::string high = number_text(result.got.high);
  return low == high ? low : low + ".." + high;
}

std::string verdict_text(const CaseResult& result) {
  return std::string(name_of(result.verdict)) + (result.by_tolerance ? " by tolerance" : "");
}

}  // namespace

Answer check_answer(const Options& options) {
  const std::vector<capacity::CapacityCase> cases =
      spec::load_cases(options.cases, options.cases == "-" ? cli::read_stdin() : std::string());
  Answer answer;
  report::Document& document = answer.document;
  document.kind = "memcalc.check";
  report::Table table{.name = "cases", .title = "Cases", .columns = {}, .rows = {}};
  table.columns = {{.key = "case", .title = "case"},
                   {.key = "quantity", .title = "quantity"},
                   {.key = "expected", .title = "logged", .precision = 4, .thousands = true},
                   {.key = "got", .title = "planned"},
                   {.key = "gap_percent", .title = "gap %", .precision = 2},
                   {.key = "verdict", .title = "verdict"},
                   {.key = "formula", .title = "formula"}};
  std::array<std::int64_t, 5> counts{};
  std::int64_t quantities = 0;
  std::int64_t by_tolerance = 0;
  for (const capacity::CapacityCase& one : cases) {
    bool explained = false;
    for (const CaseResult& result : capacity::check_case(one)) {
      ++counts[static_cast<std::size_t>(result.verdict)];
      ++quantities;
      by_tolerance += result.by_tolerance ? 1 : 0;
      explained = explained || result.verdict == Verdict::kExplained;
      answer.fits = answer.fits && result.verdict != Verdict::kDiffers && result.verdict != Verdict::kUnknown;
      table.rows.push_back({result.id, result.key, bytes_cell(result.expected), computed_text(result),
                            100 * result.gap, verdict_text(result), result.got.formula});
    }
    if (explained) document.notes.push_back(fmt::format("{}: {}", one.id, one.explanation));
    for (const std::string& note : one.notes) document.notes.push_back(fmt::format("{}: {}", one.id, note));
  }
  const auto of = [&](Verdict verdict) { return counts[static_cast<std::size_t>(verdict)]; };
  document.headline.push_back(
      fmt::format("{} with {}: {} agree, {} explained, {} not judged, {} differ, {} unknown",
                  counted(static_cast<std::int64_t>(cases.size()), "case"),
                  counted(quantities, "logged number"), of(Verdict::kAgrees), of(Verdict::kExplained),
                  of(Verdict::kInformative), of(Verdict::kDiffers), of(Verdict::kUnknown)));
  if (by_tolerance > 0) {
    document.headline.push_back(
        fmt::format("{} of those that agree {} outside what is planned and inside the file's tolerance",
                    by_tolerance, by_tolerance == 1 ? "lies" : "lie"));
  }
  document.facts = {{"cases", static_cast<std::int64_t>(cases.size())},
                    {"agree", of(Verdict::kAgrees)},
                    {"agree_by_tolerance", by_tolerance},
                    {"explained", of(Verdict::kExplained)},
                    {"differ", of(Verdict::kDiffers)},
                    {"unknown", of(Verdict::kUnknown)}};
  document.tables.push_back(std::move(table));
  return answer;
}

}  // namespace mla::memcalc
