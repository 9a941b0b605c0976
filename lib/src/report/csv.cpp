// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/render.hpp"

namespace mla::report {
namespace {

/// RFC 4180: a field that holds a comma, a quote or a line end is quoted, quotes inside are doubled.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::string render_csv(const Document& document) {
  std::string out;
  for (const Table& table : document.tables) {
    if (!out.empty()) out += '\n';  // an empty line parts the tables
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      out += (c == 0 ? "" : ",") + field(table.columns[c].key);
    out += '\n';
    for (const auto& row : table.rows) {
      for (std::size_t c = 0; c < row.size(); ++c) out += (c == 0 ? "" : ",") + field(show_exact(row[c]));
      out += '\n';
    }
  }
  if (out.empty()) {  // a document without tables: its facts are the data
    out = "key,value\n";
    for (const auto& [key, value] : document.facts) out += field(key) + ',' + field(show_exact(value)) + '\n';
  }
  return out;
}

}  // namespace mla::report
