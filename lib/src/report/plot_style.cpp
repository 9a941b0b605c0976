// SPDX-License-Identifier: Apache-2.0
#include "report/plot_style.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mla::report {
namespace {

constexpr int kPanelWidth = 560;
constexpr int kPanelHeight = 360;
/// Okabe and Ito's colours.
constexpr std::array<const char*, 8> kColors{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                             "#E69F00", "#56B4E9", "#000000", "#999999"};

}  // namespace

Legend legend_of(const std::vector<std::string>& names, int panels) {
  constexpr std::size_t kHalfPanel = 24;  // characters of a name that leave room for one beside it
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, name.size());
  Legend legend{.columns = panels * (longest > kHalfPanel ? 1 : 2)};
  legend.lines = (static_cast<int>(names.size()) + legend.columns - 1) / legend.columns;
  return legend;
}

std::string legend_lines(const Legend& legend) {
  return fmt::format("set bmargin {}\nset key outside below maxcols {} samplen 2 width 1\n", 5 + legend.lines,
                     legend.columns);
}

std::string terminal_line(Picture picture, int columns, int rows, int legend) {
  constexpr int kRoomForLegend = 4;  // lines of it that a panel has room for anyway
  constexpr int kLine = 18;
  const int width = columns * kPanelWidth;
  const int height = rows * (kPanelHeight + kLine * std::max(0, legend - kRoomForLegend));
  if (picture == Picture::kPng) {
    return fmt::format("set terminal pngcairo size {},{} noenhanced font 'sans,11'\n", width, height);
  }
  return fmt::format("set terminal svg size {},{} noenhanced font 'sans-serif,12' background '#ffffff'\n",
                     width, height);
}

std::string style_lines() {
  std::string out =
      "set border 3\nset tics nomirror\nset grid lc rgb '#dddddd'\nset key outside below\nset bmargin 6\n";
  for (std::size_t i = 0; i < kColors.size(); ++i) {
    out += fmt::format("set linetype {} lc rgb '{}' lw 2 pt {} ps 0.7\n", i + 1, kColors[i], i + 4);
  }
  return out;
}

std::string axis_lines(char axis, const Span& span) {
  if (!span.logarithmic()) return fmt::format("unset logscale {}\nset {}range [0:*]\n", axis, axis);
  return fmt::format("set logscale {} {}\nset {}range [*:*]\n", axis, axis == 'x' ? 2 : 10, axis);
}

std::string data_block(const std::string& name, const std::vector<std::pair<double, double>>& points) {
  std::string out = fmt::format("${} << EOD\n", name);
  for (const auto& [x, y] : points) out += fmt::format("{} {}\n", x, y);
  return out + "EOD\n";
}

}  // namespace mla::report
