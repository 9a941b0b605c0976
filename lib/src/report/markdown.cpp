// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "report/render.hpp"

namespace mla::report {
namespace {

/// What would end a cell or start markup of its own.
std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "<br>";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      if (c == '|' || c == '\\' || c == '*' || c == '`') out += '\\';
      out += c;
    }
  }
  return out;
}

void append_table(std::string& out, const Table& table, const RenderOptions& options) {
  if (!table.title.empty()) out += "### " + escape(table.title) + "\n\n";
  const Folded folded = fold(table, options.fold_constant_columns);
  if (const std::string line = folded_line(table, folded); !line.empty()) out += escape(line) + "\n\n";
  std::string head = "|";
  std::string rule = "|";
  for (const std::size_t c : folded.kept) {
    const bool right = std::ranges::any_of(table.rows, [&](const auto& row) { return is_number(row[c]); });
    head += ' ' + escape(table.columns[c].title) + " |";
    rule += right ? " ---: |" : " --- |";
  }
  out += head + '\n' + rule + '\n';
  for (const auto& row : table.rows) {
    out += '|';
    for (const std::size_t c : folded.kept) out += ' ' + escape(show(row[c], table.columns[c])) + " |";
    out += '\n';
  }
}

}  // namespace

std::string render_markdown(const Document& document, const RenderOptions& options) {
  std::string out;
  const auto blank = [&] {
    if (!out.empty()) out += '\n';
  };
  for (const std::string& line : document.headline) {
    blank();
    out += escape(line) + '\n';
  }
  if (!document.facts.empty()) blank();
  for (const auto& [key, value] : document.facts)
    out += "- " + escape(key) + ": " + escape(show(value)) + '\n';
  for (const Table& table : document.tables) {
    blank();
    append_table(out, table, options);
  }
  for (const std::string& note : document.notes) {
    blank();
    out += escape(note) + '\n';
  }
  return out.empty() ? "\n" : out;
}

}  // namespace mla::report
