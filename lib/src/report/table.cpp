// SPDX-License-Identifier: Apache-2.0
#include "report/table.hpp"

#include <fmt/format.h>

#include <set>

#include "mla/error.hpp"
#include "report/render.hpp"

namespace mla::report {
namespace {

/// A row with too few cells would silently shift a column; two tables of one name would overwrite each other
/// in JSON.
void check(const Document& document) {
  std::set<std::string> names;
  for (const Table& table : document.tables) {
    if (!names.insert(table.name).second) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("two tables of {} are called '{}'", document.kind, table.name));
    }
    for (const auto& row : table.rows) {
      if (row.size() != table.columns.size()) {
        throw Error(ErrorCode::kInternal, fmt::format("table '{}' has {} columns, but a row of {} cells",
                                                      table.name, table.columns.size(), row.size()));
      }
    }
  }
}

}  // namespace

Format parse_format(std::string_view text) {
  if (text == "table") return Format::kTable;
  if (text == "json") return Format::kJson;
  if (text == "csv") return Format::kCsv;
  if (text == "md") return Format::kMarkdown;
  if (text == "html") return Format::kHtml;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not an output format", text),
              "allowed are table, json, csv, md and html");
}

std::string render(const Document& document, Format format, const RenderOptions& options) {
  check(document);
  switch (format) {
    case Format::kTable:
      return render_text(document, options);
    case Format::kJson:
      return render_json(document);
    case Format::kCsv:
      return render_csv(document);
    case Format::kMarkdown:
      return render_markdown(document, options);
    case Format::kHtml:
      return render_html(document);
  }
  throw Error(ErrorCode::kInternal, fmt::format("no renderer for format {}", static_cast<int>(format)));
}

Folded fold(const Table& table, bool enabled) {
  Folded folded;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    bool constant = enabled && table.rows.size() >= 2;
    for (const auto& row : table.rows) constant = constant && row[c] == table.rows.front()[c];
    (constant ? folded.constant : folded.kept).push_back(c);
  }
  if (folded.kept.empty() && !folded.constant.empty()) {
    folded.kept.push_back(folded.constant.front());
    folded.constant.erase(folded.constant.begin());
  }
  return folded;
}

std::string folded_line(const Table& table, const Folded& folded) {
  std::string line;
  for (const std::size_t c : folded.constant) {
    const Cell& cell = table.rows.front()[c];
    if (std::holds_alternative<std::monostate>(cell)) continue;
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", table.columns[c].title,
                        show(cell, table.columns[c]));
  }
  return line;
}

}  // namespace mla::report
