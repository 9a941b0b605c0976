// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "report/chart.hpp"
#include "report/record.hpp"
#include "report/table.hpp"

namespace mla::report {

struct HtmlReport {
  std::string title;
  std::string question;               ///< may be empty
  std::vector<std::string> findings;  ///< sentences under the title
  std::vector<BenchRecord> records;
  std::vector<Environment> environments;
  ChartRequest chart;
  std::string command;  ///< made this report; shown at the bottom
};

/// One file that needs no network: charts (by gnuplot, as images with a text alternative), the best backend
/// over batch and length, memory, error budget, every point with a filter box, environment and commands.
/// Without gnuplot the charts are replaced by a sentence that names the package.
[[nodiscard]] std::string render_html(const HtmlReport& report);

/// A table whose columns of numbers are set right; `id` for style and scripts.
[[nodiscard]] std::string html_table(const Table& table, std::string_view id);
/// An image of what the script draws; the alternative text says what can be seen in it. Without gnuplot a
/// sentence.
[[nodiscard]] std::string html_chart(const std::function<std::string()>& script,
                                     std::string_view alternative);

/// "<" and its like made plain.
[[nodiscard]] std::string html_escaped(std::string_view text);
[[nodiscard]] std::string base64(std::string_view bytes);

}  // namespace mla::report
