// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "plan/lengths.hpp"
#include "spec/length_file.hpp"
#include "spec/text_file.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::LengthReport;
using report::Cell;

report::Table lengths_table(const LengthReport& report, std::int64_t replicas) {
  report::Table table{.name = "lengths", .title = "Real lengths", .columns = {}, .rows = {}};
  table.columns = {{.key = "what", .title = "what"},
                   {.key = "replica", .title = replicas == 1 ? "all GPUs" : "a replica", .thousands = true},
                   {.key = "cluster", .title = "cluster", .thousands = true},
                   {.key = "how", .title = "how"}};
  const auto add = [&](const char* what, Cell value, Cell cluster, const char* how) {
    table.rows.push_back({std::string(what), std::move(value), std::move(cluster), std::string(how)});
  };
  const auto both = [&](const char* what, std::int64_t value, const char* how) {
    add(what, value, value * replicas, how);
  };
  const auto whole = [](double value) { return static_cast<std::int64_t>(std::floor(value)); };
  add("requests of the trace", report.requests, Cell(), "");
  add("longer than the context", report.too_long, Cell(), "the engine refuses them; left out below");
  if (report.empty > 0) add("without a token", report.empty, Cell(), "left out below");
  add("tokens of a request, mean", report.mean, Cell(), "prompt + output");
  add("median", report.p50, Cell(), "");
  add("90 % have at most", report.p90, Cell(), "");
  add("99 % have at most", report.p99, Cell(), "");
  add("longest", report.longest, Cell(), "");
  add("empty slots of last blocks, %", 100 * report.paging_waste, Cell(),
      "of all slots allocated, requests at full length");
  both("at once, a random moment", whole(report.expected),
       "each somewhere in its answer; long answers are seen more often");
  both("at once, 99 % certain", report.certain, "the same, and the pool overflows in 1 of 100 moments");
  both("at once, all at full length", whole(report.at_full_length),
       "pool / mean request: answered all at one time");
  both("at once, all of the whole context", report.worst_case, "the plan above");
  if (replicas == 1) {
    table.columns.erase(table.columns.begin() + 2);
    for (auto& row : table.rows) row.erase(row.begin() + 2);
  }
  return table;
}

}  // namespace

void add_lengths(report::Document& document, const Question& question, const std::string& file,
                 std::vector<capacity::Line>& lines) {
  const bool from_stdin = file == "-";
  const auto trace = spec::parse_lengths(from_stdin ? cli::read_stdin() : spec::read_text_file(file),
                                         from_stdin ? "standard input" : file);
  const LengthReport report = plan_lengths(question.model, question.request, trace);
  const std::int64_t replicas = question.request.layout.dp;
  if (report.too_long + report.empty == report.requests) {
    document.headline.push_back(fmt::format("real lengths: none of {} can be served at this context",
                                            counted(report.requests, "request")));
  } else {
    document.headline.push_back(
        fmt::format("real lengths ({}, mean {} tokens): about {} at once, {} with 99 % certainty",
                    counted(report.requests, "request"), report::with_thousands(std::llround(report.mean)),
                    report::with_thousands(static_cast<std::int64_t>(report.expected) * replicas),
                    report::with_thousands(report.certain * replicas)));
  }
  document.tables.push_back(lengths_table(report, replicas));
  lines.insert(lines.end(), report.lines.begin(), report.lines.end());
}

}  // namespace mla::memcalc
