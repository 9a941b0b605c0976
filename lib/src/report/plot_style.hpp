// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// What all charts share: sizes, colours, axes, inline data, as lines for gnuplot.
namespace mla::report {

enum class Picture : std::uint8_t { kSvg, kPng };

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< by x
};

struct Span {
  double low = 1e308, high = -1e308;
  void add(double value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  /// Values that span less than a factor of 20 are easier to read on a straight axis.
  [[nodiscard]] bool logarithmic() const { return low > 0 && high / low >= 20; }
};

/// Names below a panel, in as many columns as stand side by side.
struct Legend {
  int columns = 1, lines = 0;
};
/// `panels`: widths of one panel that there is room for.
[[nodiscard]] Legend legend_of(const std::vector<std::string>& names, int panels = 1);
/// The key below the axis' title, with room for all of its lines.
[[nodiscard]] std::string legend_lines(const Legend& legend);

/// "set terminal ..." for a picture of that many panels, with room for a legend of so many lines below each.
[[nodiscard]] std::string terminal_line(Picture picture, int columns, int rows, int legend = 0);
/// Border, grid, key and colours that are told apart with any colour vision.
[[nodiscard]] std::string style_lines();
/// "set logscale x" with ticks at powers of two where these are the values people choose.
[[nodiscard]] std::string axis_lines(char axis, const Span& span);
/// Inline data under a name.
[[nodiscard]] std::string data_block(const std::string& name,
                                     const std::vector<std::pair<double, double>>& points);

}  // namespace mla::report
