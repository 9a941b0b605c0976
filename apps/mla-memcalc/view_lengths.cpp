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
  const auto add = [&](const char* what, Cell value, Cell cluster, std::string how) {
    table.rows.push_back({std::string(what), std::move(value), std::move(cluster), std::move(how)});
  };
  const auto fits = [&](const char* what, double value, const char* how) {
    const std::int64_t runs = report.at_once(value);
    add(what, runs, runs * replicas, how);
  };
  add("requests of the trace", report.requests, Cell(), "");
  add("longer than the context", report.too_long, Cell(), "the engine refuses them; left out below");
  if (report.empty > 0) add("without a token", report.empty, Cell(), "left out below");
  if (report.served > 0) {
    add("tokens of a request, mean", report.mean, Cell(), "prompt + output");
    add("median", report.p50, Cell(), "");
    add("90 % have at most", report.p90, Cell(), "");
    add("99 % have at most", report.p99, Cell(), "");
    add("longest", report.longest, Cell(), "");
    add("empty slots of last blocks, %", 100 * report.paging_waste, Cell(),
        "of all slots allocated, requests at full length");
    fits("at once, a random moment", report.expected,
         "each somewhere in its answer; long answers are seen more often");
    fits("at once, 99 % certain", static_cast<double>(report.certain),
         "the same, and the pool overflows in 1 of 100 moments");
    fits("at once, all at full length", report.at_full_length,
         "pool / mean request: answered all at one time");
    if (report.expected > static_cast<double>(report.most)) {
      const auto pool = static_cast<std::int64_t>(report.expected);
      add("the pool holds", pool, pool * replicas,
          fmt::format("at a random moment, but for {}", report.most_is));
    }
  }
  fits("at once, all of the whole context", static_cast<double>(report.worst_case), "the plan above");
  if (replicas == 1) {
    table.columns.erase(table.columns.begin() + 2);
    for (auto& row : table.rows) row.erase(row.begin() + 2);
  }
  return table;
}

/// "2 are longer than the context of 4,096, 1 has no token"; empty if none is left out.
std::string left_out(const LengthReport& report, std::int64_t context) {
  std::string text;
  if (report.too_long > 0) {
    text = fmt::format("{} {} longer than the context of {}", report::with_thousands(report.too_long),
                       report.too_long == 1 ? "is" : "are", report::with_thousands(context));
  }
  if (report.empty > 0) {
    text += fmt::format("{}{} {} no token", text.empty() ? "" : ", ", report::with_thousands(report.empty),
                        report.empty == 1 ? "has" : "have");
  }
  return text;
}

std::string headline(const LengthReport& report, std::int64_t replicas, std::int64_t context) {
  const std::string out = left_out(report, context);
  if (report.served == 0)
    return fmt::format("real lengths: none of {} can be served: {}", counted(report.requests, "request"),
                       out);
  const std::string requests = out.empty() ? counted(report.served, "request")
                                           : fmt::format("{} of {}", report::with_thousands(report.served),
                                                         counted(report.requests, "request"));
  std::string text =
      fmt::format("real lengths ({}, mean {} tokens): about {} at once, {} with 99 % certainty", requests,
                  report::with_thousands(std::llround(report.mean)),
                  report::with_thousands(report.at_once(report.expected) * replicas),
                  report::with_thousands(report.at_once(static_cast<double>(report.certain)) * replicas));
  if (report.expected > static_cast<double>(report.most)) {
    text += fmt::format("; as many as {} lets run, {} fit", report.most_is,
                        report::with_thousands(static_cast<std::int64_t>(report.expected) * replicas));
  }
  return out.empty() ? text : fmt::format("{}; {}", text, out);
}

}  // namespace

void add_lengths(report::Document& document, const Question& question, const std::string& file,
                 std::vector<capacity::Line>& lines) {
  const bool from_stdin = file == "-";
  const auto trace = spec::parse_lengths(from_stdin ? cli::read_stdin() : spec::read_text_file(file),
                                         from_stdin ? "standard input" : file);
  const LengthReport report = plan_lengths(question.model, question.request, trace);
  const std::int64_t replicas = question.request.layout.dp;
  document.headline.push_back(headline(report, replicas, question.request.context));
  document.tables.push_back(lengths_table(report, replicas));
  lines.insert(lines.end(), report.lines.begin(), report.lines.end());
}

}  // namespace mla::memcalc
