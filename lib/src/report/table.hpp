// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "report/figure.hpp"

/// One description of a result, many views: terminal table, JSON, CSV, Markdown come from the same columns.
namespace mla::report {

/// Absent, text, integer, real or truth. Reals that are not finite are shown as text and left out of JSON.
using Cell = std::variant<std::monostate, std::string, std::int64_t, double, bool>;

struct Column {
  std::string key;    ///< machine name with the unit in it: "time_us", "bytes_per_token"
  std::string title;  ///< head of the column in a table
  int precision = 2;  ///< digits after the point for reals (tables and Markdown only; JSON and CSV keep all)
  bool thousands = false;   ///< group digits of integers in tables
  bool scientific = false;  ///< reals as 1.23e-07 in tables and Markdown
  bool whole = false;       ///< text that tells rows apart: never cut to the width of a terminal
};

struct Table {
  std::string name;  ///< machine name
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// What a program answers: a headline for people, facts (key, value), tables, notes.
struct Document {
  std::string kind;                   ///< "memcalc.table", "verify.golden", "bench.run"
  std::vector<std::string> headline;  ///< the answer, before any table
  std::vector<std::pair<std::string, Cell>> facts;
  std::vector<Table> tables;
  std::vector<std::string> notes;  ///< after the tables: warnings, formulas
  std::optional<Figure> figure{};  ///< HTML only; programs may draw it into a file of its own
  std::string command{};           ///< HTML only: made this document
};

enum class Format : std::uint8_t { kTable, kJson, kCsv, kMarkdown, kHtml };
/// "table", "json", "csv", "md", "html". Throws kInvalidArgument naming the allowed ones.
[[nodiscard]] Format parse_format(std::string_view text);

struct RenderOptions {
  int width = 0;  ///< 0: do not truncate
  bool color = false;
  bool fold_constant_columns = false;  ///< print columns that never change once, above the table
  int height = 0;  ///< text that fills it ends with the headline again, now off the screen; 0: never
};

/// Text ends with a newline. CSV prints the tables one after another, each with its header line, headline and
/// notes left out; HTML is one page that needs no network; JSON is one object with "schema_version", "kind",
/// facts and tables as arrays of objects.
[[nodiscard]] std::string render(const Document& document, Format format, const RenderOptions& options = {});

/// 1234567 -> "1,234,567".
[[nodiscard]] std::string with_thousands(std::int64_t value);
/// "1.13 GiB", "68.6 GiB": binary units, three or more significant digits.
[[nodiscard]] std::string human_gib(double bytes);
/// "141 GB": decimal units.
[[nodiscard]] std::string human_gb(double bytes);

}  // namespace mla::report
