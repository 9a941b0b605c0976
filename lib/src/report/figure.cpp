// SPDX-License-Identifier: Apache-2.0
#include "report/figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "mla/error.hpp"
#include "report/gnuplot.hpp"

namespace mla::report {
namespace {

/// Undoes what a panel before may have set.
constexpr const char* kFresh =
    "unset logscale\nset xtics autofreq norotate\nset xrange [*:*]\nset yrange [0:*]\nunset xlabel\n"
    "unset rmargin\nset key default\nset format xy '%g'\n";

/// "128k", "1M" in powers of 1,024, "6000".
std::string binary_text(double value) {
  constexpr std::int64_t kKi = 1024;
  const auto whole = static_cast<std::int64_t>(value);
  if (static_cast<double>(whole) != value || whole <= 0) return fmt::format("{:g}", value);
  if (whole % (kKi * kKi) == 0) return fmt::format("{}M", whole / (kKi * kKi));
  return whole % kKi == 0 ? fmt::format("{}k", whole / kKi) : fmt::format("{}", whole);
}

/// A tick for each value that a point has; of many every second, fourth, ... of them.
std::string ticks_at(const std::set<double>& values) {
  constexpr std::size_t kMost = 10;
  std::size_t step = 1;
  while ((values.size() + step - 1) / step > kMost) step *= 2;
  std::string ticks;
  std::size_t at = 0;
  for (const double value : values) {
    if (at++ % step != 0) continue;
    ticks += fmt::format("{}{} {}", ticks.empty() ? "" : ", ", gnuplot_quoted(binary_text(value)), value);
  }
  return fmt::format("set xtics ({})\n", ticks);
}

std::vector<std::string> names_of(const LinePanel& panel) {
  std::vector<std::string> names;
  for (const Series& series : panel.series) {
    if (!series.points.empty()) names.push_back(series.name);
  }
  return names;
}

std::string draw(const BarPanel& panel, int& block) {
  constexpr std::size_t kLevelNames = 3;  // more names than this are written slanting
  constexpr std::size_t kSlantNames = 8;  // and more than this steeply
  const std::string name = fmt::format("d{}", ++block);
  std::string out = fmt::format("${} << EOD\n", name);
  Span span;
  std::string ticks;
  int at = 0;
  for (const Bar& bar : panel.bars) {
    for (const double value : bar.values) {
      out += std::isfinite(value) ? fmt::format(" {}", value) : std::string(" ?");
      if (std::isfinite(value)) span.add(value);
    }
    out += '\n';
    ticks += fmt::format("{}{} {}", ticks.empty() ? "" : ", ", gnuplot_quoted(bar.name), at++);
  }
  out += "EOD\nset datafile missing '?'\nset style data histogram\nset style fill solid 0.85\n";
  out += panel.stacked ? "set style histogram rowstacked\nset boxwidth 0.7\n"
                       : "set style histogram clustered gap 1\nset boxwidth 0.9\n";
  out += kFresh;
  if (!panel.stacked && span.logarithmic())
    out += "set logscale y 10\nset yrange [*:*]\nset format y '%.0s%c'\n";
  const std::size_t bars = panel.bars.size();
  out += bars > kSlantNames   ? "set xtics rotate by -60\nset bmargin 11\n"
         : bars > kLevelNames ? "set xtics rotate by -30\nset bmargin 9\n"
                              : "set bmargin 3\n";
  out += panel.stacked ? "set key outside right top vertical\n" : "set key outside above horizontal\n";
  out += fmt::format("set xtics ({})\nset xrange [-0.6:{}.6]\n", ticks, at - 1);
  out += fmt::format("set ylabel {}\nset title {}\n", gnuplot_quoted(panel.y_title),
                     gnuplot_quoted(panel.title));
  for (std::size_t i = 0; i < panel.parts.size(); ++i) {
    out += fmt::format("{}${} using {} title {}", i == 0 ? "plot " : ", ", name, i + 1,
                       gnuplot_quoted(panel.parts[i]));
  }
  return out + '\n';
}

std::string draw(const LinePanel& panel, int& block) {
  std::string out = kFresh;
  std::string plot;
  Span xs;
  Span ys;
  std::set<double> values;
  for (const Series& series : panel.series) {
    if (series.points.empty()) continue;
    const std::string name = fmt::format("d{}", ++block);
    out += data_block(name, series.points);
    for (const auto& [x, y] : series.points) {
      xs.add(x);
      values.insert(x);
      ys.add(y);
    }
    plot += fmt::format("{}${} using 1:2 with linespoints title {}", plot.empty() ? "plot " : ", ", name,
                        gnuplot_quoted(series.name));
  }
  constexpr double kRoomForTick = 1.01;  // a tick on the very edge is not drawn
  constexpr double kDoublings = 4;       // from here on the values are powers of two that people choose
  const bool powers = xs.low > 0 && xs.high / xs.low >= kDoublings;
  out += powers ? std::string("set logscale x 2\nset xrange [*:*]\n") : axis_lines('x', xs);
  out += axis_lines('y', ys);
  out += ticks_at(values);
  out += "set format y '%.1s%c'\nset rmargin 4\n" + legend_lines(legend_of(names_of(panel)));
  if (powers) out += fmt::format("set xrange [{}:{}]\n", xs.low, xs.high * kRoomForTick);
  out += fmt::format("set xlabel {}\nset ylabel {}\nset title {}\n", gnuplot_quoted(panel.x_title),
                     gnuplot_quoted(panel.y_title), gnuplot_quoted(panel.title));
  return out + plot + '\n';
}

bool empty(const BarPanel& panel) {
  return std::ranges::none_of(panel.bars, [](const Bar& bar) {
    return std::ranges::any_of(bar.values, [](double value) { return std::isfinite(value); });
  });
}
/// One panel of many bars takes the room of two.
bool wide(const Figure& figure) {
  constexpr std::size_t kMany = 8;
  return std::ranges::any_of(figure.panels, [](const auto& panel) {
    const auto* bars = std::get_if<BarPanel>(&panel);
    return bars != nullptr && bars->bars.size() > kMany;
  });
}

bool empty(const LinePanel& panel) {
  return std::ranges::all_of(panel.series, [](const Series& series) { return series.points.empty(); });
}

}  // namespace

std::string figure_script(const Figure& figure, Picture picture) {
  std::vector<const std::variant<BarPanel, LinePanel>*> drawn;
  for (const auto& panel : figure.panels) {
    if (!std::visit([](const auto& one) { return empty(one); }, panel)) drawn.push_back(&panel);
  }
  if (drawn.empty()) throw Error(ErrorCode::kInvalidArgument, "there is nothing to draw: no number is known");
  const int columns = drawn.size() > 1 ? 2 : 1;
  const int rows = (static_cast<int>(drawn.size()) + columns - 1) / columns;
  int legend = 0;
  for (const auto* panel : drawn) {
    if (const auto* lines = std::get_if<LinePanel>(panel))
      legend = std::max(legend, legend_of(names_of(*lines)).lines);
  }
  std::string out =
      terminal_line(picture, std::max(columns, wide(figure) ? 2 : 1), rows, legend) + style_lines();
  out += fmt::format("set multiplot layout {},{}\n", rows, columns);
  int block = 0;
  for (const auto* panel : drawn) {
    out += std::visit([&](const auto& one) { return draw(one, block); }, *panel);
  }
  return out + "unset multiplot\n";
}

}  // namespace mla::report
