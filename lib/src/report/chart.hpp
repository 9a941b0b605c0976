// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/plot_style.hpp"
#include "report/record.hpp"

/// Charts of records, as scripts for gnuplot and as text for those who cannot see them.
namespace mla::report {

/// What to draw: columns of record_table by key; `by` and `facet` may name several, "heads,requests".
struct ChartRequest {
  std::string x = "kv";
  std::string y = "time_us";
  std::string by = "backend";    ///< one line each
  std::string facet = "window";  ///< one panel each; empty: one panel
};

struct Panel {
  std::string title;
  std::vector<Series> series;
};

/// Sorts the rows into panels and series. Several rows at one x of a series give their median. Rows without a
/// number for x or y are left out; throws kInvalidArgument if none is left or a column does not exist.
[[nodiscard]] std::vector<Panel> make_panels(const Table& table, const ChartRequest& request);

/// The chart as a table: a row for each panel and x (which may be a text here), a column for each line, medians of y
/// in the cells. Throws as make_panels does.
[[nodiscard]] Table pivot_table(const Table& table, const ChartRequest& request);

/// Lines with points, one panel a facet, both axes logarithmic where the values span more than a factor of
/// 20.
[[nodiscard]] std::string line_script(std::span<const Panel> panels, const std::string& x_title,
                                      const std::string& y_title, Picture picture);

/// Achieved rate against arithmetic intensity, with the ceilings of each record's machine.
[[nodiscard]] std::string roofline_script(std::span<const BenchRecord> records, Picture picture);

/// How many times as fast as the slowest each backend is: a row a shape (numbered), a column a backend.
/// Shapes that only one backend did are left out.
[[nodiscard]] Table speedup_table(std::span<const BenchRecord> records);
/// The same as bars. Throws kInvalidArgument if the table is empty.
[[nodiscard]] std::string speedup_script(const Table& speedups, Picture picture);

}  // namespace mla::report
