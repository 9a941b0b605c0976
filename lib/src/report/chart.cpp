// SPDX-License-Identifier: Apache-2.0
#include "report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "report/gnuplot.hpp"
#include "report/render.hpp"
#include "report/where.hpp"

namespace mla::report {
namespace {

/// "heads,requests": the places of these columns.
std::vector<std::size_t> column_indices(const Table& table, std::string_view keys) {
  std::vector<std::size_t> indices;
  if (keys.empty()) return indices;
  for (const std::string& key : text::split(keys, ',')) indices.push_back(column_index(table.columns, key));
  return indices;
}

std::string joined(const std::vector<Cell>& row, const std::vector<std::size_t>& columns) {
  std::string name;
  for (const std::size_t c : columns) name += (name.empty() ? "" : ", ") + show(row[c]);
  return name;
}

/// A text that is a number ("512" beside "full") sorts as one.
Cell sortable(const Cell& cell) {
  const auto* text = std::get_if<std::string>(&cell);
  std::int64_t value = 0;
  if (text == nullptr) return cell;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  return status == std::errc{} && end == text->data() + text->size() ? Cell{value} : cell;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

std::vector<Panel> make_panels(const Table& table, const ChartRequest& request) {
  const std::size_t x = column_index(table.columns, request.x);
  const std::size_t y = column_index(table.columns, request.y);
  const std::vector<std::size_t> by = column_indices(table, request.by);
  const std::vector<std::size_t> facet = column_indices(table, request.facet);
  std::map<std::string, std::map<std::string, std::map<double, std::vector<double>>>> sorted;
  std::vector<std::string> order;  // panels as they come
  for (const auto& row : table.rows) {
    const std::optional<double> at = as_number(row[x]);
    const std::optional<double> value = as_number(row[y]);
    if (!at || !value || !std::isfinite(*at) || !std::isfinite(*value)) continue;
    std::string title;
    for (const std::size_t c : facet)
      title += fmt::format("{}{} {}", title.empty() ? "" : ", ", table.columns[c].title, show(row[c]));
    if (!sorted.contains(title)) order.push_back(title);
    sorted[title][joined(row, by)][*at].push_back(*value);
  }
  if (sorted.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no row has a number for both {} and {}", request.x, request.y));
  }
  std::vector<Panel> panels;
  for (const std::string& title : order) {
    Panel panel{title, {}};
    for (auto& [name, values] : sorted[title]) {
      Series series{name, {}};
      for (auto& [at, several] : values) series.points.emplace_back(at, median_of(std::move(several)));
      panel.series.push_back(std::move(series));
    }
    panels.push_back(std::move(panel));
  }
  return panels;
}

Table pivot_table(const Table& table, const ChartRequest& request) {
  std::vector<std::size_t> across = column_indices(table, request.facet);
  across.push_back(column_index(table.columns, request.x));
  const std::vector<std::size_t> by = column_indices(table, request.by);
  const std::size_t y = column_index(table.columns, request.y);
  Table pivot{"pivot", "", {}, {}};
  for (const std::size_t c : across) pivot.columns.push_back(table.columns[c]);
  const std::size_t first = pivot.columns.size();
  std::map<std::vector<Cell>, std::map<std::string, std::vector<double>>> values;
  std::vector<std::string> names;  // as they come
  for (const auto& row : table.rows) {
    const std::optional<double> value = as_number(row[y]);
    if (!value || !std::isfinite(*value)) continue;
    std::vector<Cell> place;
    for (const std::size_t c : across) place.push_back(sortable(row[c]));
    const std::string name = joined(row, by);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    values[place][name].push_back(*value);
  }
  if (values.empty())
    throw Error(ErrorCode::kInvalidArgument, fmt::format("no row has a number for {}", request.y));
  for (const std::string& name : names) pivot.columns.push_back({name, name, table.columns[y].precision});
  for (auto& [place, by_name] : values) {
    std::vector<Cell> row = place;
    row.resize(first + names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (const auto found = by_name.find(names[i]); found != by_name.end())
        row[first + i] = median_of(found->second);
    }
    pivot.rows.push_back(std::move(row));
  }
  return pivot;
}

std::string line_script(std::span<const Panel> panels, const std::string& x_title, const std::string& y_title,
                        Picture picture) {
  const int columns = panels.size() > 1 ? 2 : 1;
  const int rows = (static_cast<int>(panels.size()) + columns - 1) / columns;
  Legend legend;
  Span xs;
  Span ys;
  for (const Panel& panel : panels) {
    std::vector<std::string> names;
    for (const Series& series : panel.series) {
      names.push_back(series.name);
      for (const auto& [x, y] : series.points) {
        xs.add(x);
        ys.add(y);
      }
    }
    const Legend own = legend_of(names);
    if (own.lines > legend.lines) legend = own;
  }
  std::string out =
      terminal_line(picture, columns, rows, legend.lines) + style_lines() + legend_lines(legend);
  out += axis_lines('x', xs) + axis_lines('y', ys);
  out += fmt::format("set xlabel {}\nset ylabel {}\nset multiplot layout {},{}\n", gnuplot_quoted(x_title),
                     gnuplot_quoted(y_title), rows, columns);
  int block = 0;
  for (const Panel& panel : panels) {
    std::string plot;
    for (const Series& series : panel.series) {
      const std::string name = fmt::format("d{}", ++block);
      out += data_block(name, series.points);
      plot += fmt::format("{}${} using 1:2 with linespoints title {}", plot.empty() ? "plot " : ", ", name,
                          gnuplot_quoted(series.name));
    }
    out += fmt::format("set title {}\n{}\n", gnuplot_quoted(panel.title), plot);
  }
  return out + "unset multiplot\n";
}

std::string roofline_script(std::span<const BenchRecord> records, Picture picture) {
  std::map<std::string, std::vector<std::pair<double, double>>> points;
  Span intensity;
  double bandwidth = 0;
  double rate = 0;
  for (const BenchRecord& record : records) {
    if (!record.gflops || !record.flops || !record.bytes || !record.ceiling_gbps || !record.ceiling_gflops)
      continue;
    points[record.backend].emplace_back(*record.flops / *record.bytes, *record.gflops);
    intensity.add(*record.flops / *record.bytes);
    bandwidth = std::max(bandwidth, *record.ceiling_gbps);
    rate = std::max(rate, *record.ceiling_gflops);
  }
  if (points.empty())
    throw Error(ErrorCode::kInvalidArgument, "no row has rates and ceilings for a roofline");
  // GPUs count in tera, CPUs in giga.
  const bool tera = rate >= 1e4;
  const double unit = tera ? 1e3 : 1;
  const char* const unit_name = tera ? "TFLOP/s" : "GFLOP/s";
  for (auto& [backend, list] : points) {
    for (auto& [x, y] : list) y /= unit;
  }
  const std::string roof_name =
      fmt::format("ceilings: {:.4g} GB/s, {:.4g} {}", bandwidth, rate / unit, unit_name);
  std::vector<std::string> names{roof_name};
  for (const auto& [backend, list] : points) names.push_back(backend);
  const Legend legend = legend_of(names, 2);
  std::string out = terminal_line(picture, 2, 1, legend.lines) + style_lines() + legend_lines(legend);
  out += fmt::format(
      "set logscale xy 10\nset xlabel \"FLOPs of the strategy / least bytes\"\nset ylabel \"{}\"\n",
      unit_name);
  out += fmt::format("set xrange [{}:{}]\n", std::min(intensity.low, rate / bandwidth) / 3,
                     std::max(intensity.high, rate / bandwidth) * 3);
  out += fmt::format("roof(x) = x * {0} < {1} ? x * {0} : {1}\n", bandwidth / unit, rate / unit);
  std::string plot =
      fmt::format("plot roof(x) with lines lc rgb '#000000' lw 2 title {}", gnuplot_quoted(roof_name));
  int block = 0;
  for (const auto& [backend, list] : points) {
    const std::string name = fmt::format("d{}", ++block);
    out += data_block(name, list);
    plot += fmt::format(", ${} using 1:2 with points lt {} title {}", name, block, gnuplot_quoted(backend));
  }
  return out + plot + '\n';
}

Table speedup_table(std::span<const BenchRecord> records) {
  std::map<std::string, std::map<std::string, double>> times;  // shape -> backend -> us
  std::map<std::string, int> backends;
  for (const BenchRecord& record : records) {
    if (!record.time_us || record.repetition != 0) continue;
    times[fmt::format("{}{} {} {}", record.key, record.work.empty() ? "" : " " + record.work, record.device,
                      record.cache_state)][record.backend] = *record.time_us;
    backends[record.backend] = 0;
  }
  std::erase_if(times, [](const auto& entry) { return entry.second.size() < 2; });
  Table table{"speedups", "", {{"number", "number"}, {"shape", "shape"}}, {}};
  for (const auto& [backend, unused] : backends) table.columns.push_back({backend, backend, 2});
  for (const auto& [shape, by_backend] : times) {
    double slowest = 0;
    for (const auto& [backend, time] : by_backend) slowest = std::max(slowest, time);
    std::vector<Cell> row{std::ssize(table.rows) + 1, shape};
    for (const auto& [backend, unused] : backends) {
      const auto found = by_backend.find(backend);
      row.push_back(found == by_backend.end() ? Cell{} : Cell{slowest / found->second});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string speedup_script(const Table& speedups, Picture picture) {
  if (speedups.rows.empty())
    throw Error(ErrorCode::kInvalidArgument, "no shape was measured with two backends");
  std::vector<std::string> names;
  for (std::size_t i = 2; i < speedups.columns.size(); ++i) names.push_back(speedups.columns[i].title);
  const Legend legend = legend_of(names, 2);
  std::string out = terminal_line(picture, 2, 1, legend.lines) + style_lines() + legend_lines(legend);
  out +=
      "set style data histogram\nset style histogram clustered gap 1\nset style fill solid 0.8\nset yrange "
      "[0:*]\n";
  out += "set ylabel \"times as fast as the slowest\"\nset xlabel \"number of the shape\"\n";
  out += "$d << EOD";
  for (const auto& row : speedups.rows) {
    out += '\n' + show(row[0]);
    for (std::size_t c = 2; c < row.size(); ++c) {
      const std::optional<double> value = as_number(row[c]);
      out += value ? fmt::format(" {}", *value) : std::string(" ?");
    }
  }
  out += "\nEOD\nset datafile missing '?'\nplot ";
  for (std::size_t i = 2; i < speedups.columns.size(); ++i) {
    out += fmt::format("{}$d using {}:xtic(1) title {}", i == 2 ? "" : ", ", i,
                       gnuplot_quoted(speedups.columns[i].title));
  }
  return out + '\n';
}

}  // namespace mla::report
