// SPDX-License-Identifier: Apache-2.0
#include "report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/shape.hpp"
#include "report/findings.hpp"
#include "report/gnuplot.hpp"
#include "report/html_page.hpp"
#include "report/render.hpp"
#include "report/where.hpp"

namespace mla::report {
namespace {

constexpr const char* kCellColors[] = {"#0072B2", "#B34700", "#00795A", "#A04A80",
                                       "#8A6100", "#2A7FA8", "#444444"};

std::string section(std::string_view title, std::string_view body) {
  return fmt::format("<h2>{}</h2>\n{}\n", html_escaped(title), body);
}

/// Index of each backend in the palette: the order of the charts' lines, so that a backend has one colour.
std::map<std::string, std::size_t> palette(std::span<const BenchRecord> records) {
  std::map<std::string, std::size_t> index;
  for (const BenchRecord& record : records) {
    if (record.time_us) index.emplace(record.backend, 0);
  }
  std::size_t next = 0;
  for (auto& [backend, i] : index) i = next++ % std::size(kCellColors);
  return index;
}

/// Where each backend wins: batch down, longest context across. Of several points in a cell (other axes) the
/// backend that wins most.
std::string best_map(std::span<const BenchRecord> records) {
  struct Rivals {
    std::map<std::string, std::map<std::string, double>> shapes;  // point without backend -> backend -> us
  };
  std::map<std::int64_t, std::map<std::string, Rivals>> cells;  // kv -> batch -> rivals
  std::set<std::pair<std::size_t, std::string>> batches;        // by requests
  for (const BenchRecord& record : records) {
    if (!record.time_us) continue;
    const AttentionShape shape = parse_shape(record.key);
    std::int64_t kv = 0;
    std::int32_t q_len = 0;
    for (const Request& request : shape.batch) {
      kv = std::max<std::int64_t>(kv, request.kv_len);
      q_len = std::max(q_len, request.q_len);
    }
    const std::string batch = fmt::format("{} requests x {} new tokens", shape.batch.size(), q_len);
    batches.emplace(shape.batch.size(), batch);
    cells[kv][batch]
        .shapes[fmt::format("{} {} {}", record.key, record.work, record.cache_state)][record.backend] =
        *record.time_us;
  }
  const std::map<std::string, std::size_t> colors = palette(records);
  std::string out = "<div class=\"scroll\"><table><thead><tr><th>batch</th>";
  for (const auto& [kv, unused] : cells) out += fmt::format("<th>{} keys</th>", with_thousands(kv));
  out += "</tr></thead><tbody>\n";
  for (const auto& [requests, batch] : batches) {
    out += fmt::format("<tr><th>{}</th>", html_escaped(batch));
    for (const auto& [kv, by_batch] : cells) {
      const auto found = by_batch.find(batch);
      std::map<std::string, int> wins;
      double lead = 0;
      int rivals = 0;
      if (found != by_batch.end()) {
        for (const auto& [shape, times] : found->second.shapes) {
          if (times.size() < 2) continue;
          std::vector<std::pair<double, std::string>> order;
          for (const auto& [backend, time] : times) order.emplace_back(time, backend);
          std::ranges::sort(order);
          ++wins[order[0].second];
          lead = std::max(lead, order[1].first / order[0].first);
          ++rivals;
        }
      }
      if (wins.empty()) {
        out += "<td class=\"dim\">-</td>";
        continue;
      }
      const auto best = std::ranges::max_element(wins, {}, [](const auto& w) { return w.second; });
      out += fmt::format(
          "<td class=\"best\" style=\"background:{}\">{}<br><small>{} of {}, up to {:.2f}x</small></td>",
          kCellColors[colors.at(best->first)], html_escaped(best->first), best->second, rivals, lead);
    }
    out += "</tr>\n";
  }
  return out +
         "</tbody></table></div>\n<p class=\"dim\">The backend that wins most shapes of a cell, in how many "
         "of how many, and its largest "
         "lead over the second.</p>\n";
}

/// Words that no line could hold (a batch of sixty lengths) lose their middle.
std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 64;
  std::string out;
  for (const std::string& word : text::split(text, ' ')) {
    if (!out.empty()) out += ' ';
    out += word.size() <= kMost ? word : word.substr(0, 40) + "..." + word.substr(word.size() - 16);
  }
  return out;
}

std::string details(std::string_view summary, std::string_view body) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", html_escaped(summary), body);
}

/// Horizontal bars, the longest 16 em wide.
std::string bars(const std::vector<std::pair<std::string, double>>& values,
                 const std::function<std::string(double)>& text) {
  double longest = 0;
  for (const auto& [name, value] : values) longest = std::max(longest, value);
  std::string out = "<table><tbody>\n";
  for (const auto& [name, value] : values) {
    out += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td><span class=\"bar\" "
        "style=\"width:{:.2f}em\"></span></td></tr>\n",
        html_escaped(shortened(name)), html_escaped(text(value)), longest > 0 ? 16 * value / longest : 0);
  }
  return out + "</tbody></table>\n";
}

std::string memory_section(std::span<const BenchRecord> records) {
  std::map<std::string, double> cache;
  std::map<std::string, double> workspace;
  for (const BenchRecord& record : records) {
    const AttentionShape shape = parse_shape(record.key);
    double keys = 0;
    for (const Request& request : shape.batch) keys += request.kv_len;
    const auto row = static_cast<double>(cache_layout(shape.cache, shape.dims).bytes_per_token());
    cache[fmt::format("{} of {} cache, one layer", format_batch(shape.batch), name_of(shape.cache))] =
        keys * row;
    if (record.status == "ok") {
      double& most = workspace[record.backend];
      most = std::max(most, static_cast<double>(record.workspace_bytes));
    }
  }
  const auto as_bytes = [](double bytes) { return human_gib(bytes); };
  return "<p>Latent cache of the batches:</p>\n" + bars({cache.begin(), cache.end()}, as_bytes) +
         "<p>Largest workspace of each backend:</p>\n" + bars({workspace.begin(), workspace.end()}, as_bytes);
}

std::string error_section(std::span<const BenchRecord> records) {
  std::map<std::string, double> worst;
  for (const BenchRecord& record : records) {
    if (record.error_share) worst[record.backend] = std::max(worst[record.backend], *record.error_share);
  }
  if (worst.empty()) return "<p class=\"dim\">No point was verified.</p>\n";
  return bars({worst.begin(), worst.end()},
              [](double share) { return fmt::format("{:.1f} % of the budget", share * 100); });
}

std::string environment_section(std::span<const Environment> environments) {
  std::string out;
  for (const Environment& environment : environments) {
    Table table{"environment", "", {{"fact", "fact"}, {"value", "value"}}, {}};
    for (const auto& [key, value] : environment.facts) table.rows.push_back({key, show(value)});
    out += fmt::format("<details><summary>{}</summary>{}</details>\n", html_escaped(environment.id),
                       html_table(table, ""));
  }
  return out;
}

/// Columns that never change stand above; the number of requests is in the batch.
std::string points_table(std::span<const BenchRecord> records) {
  const Table whole = record_table(records, false);
  const Folded folded = fold(whole, true);
  Table table{whole.name, "", {}, {}};
  std::vector<std::size_t> kept = folded.kept;
  std::erase_if(kept, [&](std::size_t c) { return whole.columns[c].key == "requests"; });
  for (const std::size_t c : kept) table.columns.push_back(whole.columns[c]);
  for (const auto& row : whole.rows) {
    std::vector<Cell> cells;
    for (const std::size_t c : kept) cells.push_back(row[c]);
    table.rows.push_back(std::move(cells));
  }
  return fmt::format("<p class=\"dim\">{}</p>\n{}", html_escaped(folded_line(whole, folded)),
                     html_table(table, "points"));
}

/// What was refused stands apart: its rows have reasons, no numbers.
std::string points_section(std::span<const BenchRecord> records) {
  std::vector<BenchRecord> done;
  Table refused{"refused", "", {{"backend", "backend"}, {"key", "shape"}, {"reason", "why not"}}, {}};
  for (const BenchRecord& record : records) {
    if (record.status == "unsupported") {
      refused.rows.push_back({record.backend, record.key, record.reason});
    } else {
      done.push_back(record);
    }
  }
  std::string out = fmt::format(
      "<p><label>Filter (words, all must occur): <input id=\"filter\" type=\"search\"></label> "
      "<span id=\"shown\" class=\"dim\">{0} of {0} points</span></p>\n",
      done.size());
  out += points_table(done);
  if (!refused.rows.empty()) {
    out += details(fmt::format("{} points that their backend does not support", refused.rows.size()),
                   html_table(refused, "refused"));
  }
  return out;
}

/// Bars for as many shapes as can be told apart; the numbers in any case.
std::string speedup_section(std::span<const BenchRecord> records) {
  constexpr std::size_t kMostBars = 40;
  constexpr std::size_t kMostRows = 12;
  const Table speedups = speedup_table(records);
  std::string out;
  if (speedups.rows.size() <= kMostBars) {
    out =
        html_chart([&] { return speedup_script(speedups, Picture::kSvg); },
                   "How many times as fast as the slowest each backend is; the table below has the numbers");
  }
  if (speedups.rows.empty()) return out;
  const std::string table = html_table(speedups, "speedups");
  return out + (speedups.rows.size() <= kMostRows
                    ? table
                    : details(fmt::format("The numbers of {} shapes", speedups.rows.size()), table));
}

}  // namespace

std::string html_chart(const std::function<std::string()>& script, std::string_view alternative) {
  try {
    return fmt::format("<img alt=\"{}\" src=\"data:image/svg+xml;base64,{}\">\n", html_escaped(alternative),
                       base64(run_gnuplot(script())));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    return fmt::format("<p class=\"dim\">No chart: {}. {}</p>\n", html_escaped(error.what()),
                       html_escaped(error.hint()));
  }
}

std::string html_table(const Table& table, std::string_view id) {
  std::string out = fmt::format("<div class=\"scroll\"><table id=\"{}\"><thead><tr>", id);
  std::vector<bool> numeric(table.columns.size());
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    numeric[c] = std::ranges::any_of(table.rows, [&](const auto& row) { return is_number(row[c]); });
    out +=
        fmt::format("<th{}>{}</th>", numeric[c] ? " class=\"n\"" : "", html_escaped(table.columns[c].title));
  }
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      out += fmt::format("<td{}>{}</td>", numeric[c] ? " class=\"n\"" : "",
                         html_escaped(shortened(show(row[c], table.columns[c]))));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      word = (word << 8U) | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j > bytes.size() ? '=' : kDigits[(word >> (18 - 6 * j)) & 63U];
    }
  }
  return out;
}

std::string render_html(const HtmlReport& report) {
  const std::span<const BenchRecord> records = report.records;
  const Table all = record_table(records, true);
  std::string lead = fmt::format("<p>{}</p>\n", html_escaped(tally(records)));
  if (!report.question.empty())
    lead = fmt::format("<p><strong>{}</strong></p>\n", html_escaped(report.question)) + lead;
  if (!report.findings.empty()) {
    lead += "<ul>\n";
    for (const std::string& sentence : report.findings)
      lead += fmt::format("<li>{}</li>\n", html_escaped(sentence));
    lead += "</ul>\n";
  }
  const auto title_of = [&](const std::string& key) {
    return all.columns[column_index(all.columns, key)].title;
  };
  const std::string x_title = title_of(report.chart.x);
  const std::string y_title = title_of(report.chart.y);
  std::string commands;
  for (const Environment& environment : report.environments) {
    for (const auto& [key, value] : environment.facts) {
      if (key == "command") commands += show(value) + '\n';
    }
  }
  commands += report.command;
  std::string body = fmt::format("<h1>{}</h1>\n{}", html_escaped(report.title), lead);
  body += section(
      fmt::format("{} over {}", y_title, x_title),
      html_chart([&] { return line_script(make_panels(all, report.chart), x_title, y_title, Picture::kSvg); },
                 fmt::format("{} over {} by {}; the numbers are in the table of points", y_title, x_title,
                             report.chart.by)));
  body += section("Best backend", best_map(records));
  body += section(
      "Roofline",
      html_chart([&] { return roofline_script(records, Picture::kSvg); },
                 "Achieved rate against arithmetic intensity under the machine's ceilings; columns FLOP/s, "
                 "floor and bound of the table of points"));
  body += section("Speed-ups", speedup_section(records));
  body += section("Memory", memory_section(records));
  body += section("Error against the fp64 reference", error_section(records));
  body += section("Points", points_section(records));
  body += section("Where this was measured", environment_section(report.environments));
  body += section("Commands", fmt::format("<pre>{}</pre>\n", html_escaped(commands)));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n<style>{}</style>\n</head>\n"
      "<body>\n{}<script>{}</script>\n</body>\n</html>\n",
      html_escaped(report.title), kHtmlStyle, body, kHtmlScript);
}

}  // namespace mla::report
