// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/table.hpp"

/// What the views of a Document share. Not for users of the room: they call render() of table.hpp.
namespace mla::report {

[[nodiscard]] std::string render_text(const Document& document, const RenderOptions& options);
[[nodiscard]] std::string render_json(const Document& document);
[[nodiscard]] std::string render_csv(const Document& document);
[[nodiscard]] std::string render_markdown(const Document& document, const RenderOptions& options);
[[nodiscard]] std::string render_html(const Document& document);

/// Columns a terminal needs for UTF-8 text: combining marks 0, East Asian wide and emoji 2, all else 1.
[[nodiscard]] std::size_t display_width(std::string_view text) noexcept;
/// Cuts to at most `width` columns, the last one being an ellipsis if anything was cut.
[[nodiscard]] std::string truncate_to(std::string_view text, std::size_t width);

/// As people read it: reals with the column's digits, absent as "-", truth as yes/no.
[[nodiscard]] std::string show(const Cell& cell, const Column& column);
/// Outside a table: reals with six significant digits.
[[nodiscard]] std::string show(const Cell& cell);
/// As programs read it: every digit, absent as empty, truth as true/false.
[[nodiscard]] std::string show_exact(const Cell& cell);
/// Numbers are set flush right.
[[nodiscard]] bool is_number(const Cell& cell) noexcept;

/// A table whose columns that never change were taken out.
struct Folded {
  std::vector<std::size_t> kept;      ///< indices of the columns left
  std::vector<std::size_t> constant;  ///< indices of the columns taken out; their value is that of row 0
};
/// Folds only where there is something to compare: two rows or more. At least one column is kept.
[[nodiscard]] Folded fold(const Table& table, bool enabled);
/// "heads 128, dtype bf16": the folded columns in one line; absent values are left out.
[[nodiscard]] std::string folded_line(const Table& table, const Folded& folded);

}  // namespace mla::report
