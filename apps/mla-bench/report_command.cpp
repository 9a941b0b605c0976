// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "commands.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"
#include "report/chart.hpp"
#include "report/explain.hpp"
#include "report/findings.hpp"
#include "report/formulas.hpp"
#include "report/gnuplot.hpp"
#include "report/html.hpp"
#include "report/repetitions.hpp"
#include "report/where.hpp"
#include "run_files.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {
namespace {

namespace fs = std::filesystem;

report::ChartRequest chart_of(const ReportRequest& request) {
  return {.x = request.x,
          .y = request.y,
          .by = request.by,
          .facet = request.facet == "none" ? "" : request.facet};
}

std::string title_of(const report::RunFile& run) {
  if (run.records.empty()) return "MLA attention";
  const report::BenchRecord& first = run.records.front();
  const bool one_sweep =
      std::ranges::all_of(run.records, [&](const auto& r) { return r.spec == first.spec; });
  return fmt::format("MLA attention: {}",
                     one_sweep && !first.spec.empty() ? first.spec : "on " + first.device);
}

/// What the sweep was to answer, where all records are of one folder that says it.
std::string question_of(const ReportRequest& request) {
  if (request.paths.size() != 1) return {};
  fs::path folder = request.paths.front();
  if (!fs::is_directory(folder)) folder = folder.parent_path();
  const fs::path spec = folder / "spec.json";
  return fs::exists(spec) ? spec::load_spec(spec.string()).question : std::string();
}

std::string draw(const ReportRequest& request, const report::RunFile& run) {
  const report::Picture picture = request.format == "png" ? report::Picture::kPng : report::Picture::kSvg;
  if (request.chart == "roofline") return report::run_gnuplot(report::roofline_script(run.records, picture));
  if (request.chart == "speedup")
    return report::run_gnuplot(report::speedup_script(report::speedup_table(run.records), picture));
  if (request.chart != "lines") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--chart {} is not known", text::quoted(request.chart)),
                "allowed are lines, roofline and speedup");
  }
  const report::Table all = report::record_table(run.records, true);
  const report::ChartRequest chart = chart_of(request);
  const std::vector<report::Panel> panels = report::make_panels(all, chart);
  return report::run_gnuplot(
      report::line_script(panels, all.columns[report::column_index(all.columns, chart.x)].title,
                          all.columns[report::column_index(all.columns, chart.y)].title, picture));
}

std::string html(const ReportRequest& request, const report::RunFile& run) {
  return report::render_html({.title = title_of(run),
                              .question = question_of(request),
                              .findings = report::findings(run.records),
                              .records = run.records,
                              .environments = run.environments,
                              .chart = chart_of(request),
                              .command = request.command_line});
}

/// Before anything is read: a word that is not known is not known for any format.
void check(const ReportRequest& request) {
  constexpr std::string_view kFormats[] = {"table", "json", "csv", "md", "html", "svg", "png"};
  if (std::ranges::find(kFormats, request.format) == std::end(kFormats)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--output {} is no format", text::quoted(request.format)),
                "allowed are table, json, csv, md, html, svg and png");
  }
  const report::Table all = report::record_table({}, true);
  for (const std::string& keys : {request.x, request.y, request.by, request.facet}) {
    if (keys == "none" || keys.empty()) continue;
    for (const std::string& key : text::split(keys, ','))
      static_cast<void>(report::column_index(all.columns, key));
  }
}

report::Document document_of(const ReportRequest& request, const report::RunFile& run) {
  report::Document document;
  document.kind = "bench.report";
  document.headline.push_back(report::tally(run.records));
  if (request.pivot) {
    document.tables.push_back(
        report::pivot_table(report::record_table(run.records, true), chart_of(request)));
    return document;
  }
  const bool for_people = request.format == "table" || request.format == "md";
  document.tables.push_back(report::record_table(run.records, !for_people));
  if (request.explain) document.tables.push_back(report::explained_table(run.records));
  if (request.formulas) document.tables.push_back(report::formulas_table(run.records));
  document.notes = report::findings(run.records);
  return document;
}

/// Never over a file that is there.
void deliver(const ReportRequest& request, const std::string& content) {
  if (request.to.empty()) return cli::write_stdout(content);
  cli::write_new_file(request.to, content);
}

}  // namespace

int answer(const ReportRequest& request) {
  check(request);
  report::RunFile run = read_runs(request.paths);
  if (run.records.empty()) throw Error(ErrorCode::kInvalidArgument, "the runs hold no record");
  select(run.records, request.where);
  // Programs get each repetition.
  if ((request.format != "json" && request.format != "csv") || request.pivot)
    run.records = report::merge_repetitions(run.records);
  report::sort_by_axes(run.records);
  if (request.format == "html") {
    deliver(request, html(request, run));
  } else if (request.format == "svg" || request.format == "png") {
    deliver(request, draw(request, run));
  } else {
    cli::Output output = request.output;
    output.format = report::parse_format(request.format);
    output.fold_constant_columns = true;
    const report::Document document = document_of(request, run);
    if (request.to.empty()) {
      cli::print(document, output);
    } else {
      deliver(request, report::render(document, output.format, {.fold_constant_columns = true}));
    }
  }
  return cli::kOk;
}

}  // namespace mla::bench
