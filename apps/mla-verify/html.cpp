// SPDX-License-Identifier: Apache-2.0
#include "report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "report/html_page.hpp"
#include "view.hpp"

namespace mla::verify_app {
namespace {

using verify::Strip;

/// Lengths of a power of two share a cell: 0, 1, 2..3, 4..7, ...
std::int64_t bin_of(std::int64_t length) {
  return length <= 0 ? 0 : static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(length)));
}

std::string bin_label(std::int64_t bin) {
  if (bin <= 1) return std::to_string(bin);
  return fmt::format("{}..{}", std::int64_t{1} << (bin - 1), (std::int64_t{1} << bin) - 1);
}

/// White for nothing, deeper for more, red past the budget.
std::string color_of(double share) {
  if (!(share <= 1)) return "#c62828";
  const double depth = std::sqrt(share);
  return fmt::format("rgb({:.0f},{:.0f},255)", 255 - 175 * depth, 255 - 115 * depth);
}

void raise(Strip& strip, std::int64_t at, double share) {
  double& worst = strip.try_emplace(at, 0.0).first->second;
  worst = std::max(worst, share);
}

/// One line a backend, one cell a bin.
template <class Label>
std::string strips(const std::map<std::string, Strip>& by_backend, const char* what, Label label) {
  Strip all;
  for (const auto& [backend, strip] : by_backend) {
    for (const auto& [at, share] : strip) raise(all, at, share);
  }
  std::string html = fmt::format("<div class=\"scroll\"><table class=\"strip\"><thead><tr><th>{}</th>", what);
  for (const auto& [at, share] : all) html += fmt::format("<th class=\"n\">{}</th>", label(at));
  html += "</tr></thead><tbody>\n";
  for (const auto& [backend, strip] : by_backend) {
    html += fmt::format("<tr><td>{}</td>", report::html_escaped(backend));
    for (const auto& [at, unused] : all) {
      const auto found = strip.find(at);
      if (found == strip.end()) {
        html += "<td></td>";
        continue;
      }
      const double share = found->second;
      const std::string text = std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : std::string("!");
      html += fmt::format("<td class=\"n\" style=\"background:{}{}\">{}</td>", color_of(share),
                          share > 1 ? ";color:#fff" : "", text);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string error_strips(const verify::SuiteRun& run) {
  std::map<std::string, Strip> by_length, by_head;
  for (const verify::Verdict& v : run.verdicts) {
    for (const auto& [length, share] : v.by_length) raise(by_length[v.backend], bin_of(length), share);
    for (const auto& [head, share] : v.by_head) raise(by_head[v.backend], head, share);
  }
  if (by_length.empty()) return {};
  return "<h2>Largest share of the budget, in percent</h2>\n<p class=\"dim\">Over all rows of all cases. "
         "Red: past the budget; !: no number where one should be.</p>\n" +
         strips(by_length, "keys of the request", bin_label) + "<p></p>\n" +
         strips(by_head, "head", [](std::int64_t head) { return std::to_string(head); });
}

}  // namespace

std::string run_html(const report::Document& document, const RunResult& result) {
  std::string body = "<h1>mla-verify run</h1>\n";
  for (const std::string& line : document.headline)
    body += fmt::format("<p><strong>{}</strong></p>\n", report::html_escaped(line));
  report::Table facts{"facts", "", {{"fact", "fact"}, {"value", "value"}}, {}};
  for (const auto& [key, value] : document.facts) facts.rows.push_back({key, value});
  body += report::html_table(facts, "facts") + error_strips(result.cases);
  for (const report::Table& table : document.tables) {
    body += fmt::format("<h2>{}</h2>\n{}", report::html_escaped(table.title),
                        report::html_table(table, table.name));
  }
  if (!document.notes.empty()) {
    body += "<h2>Notes</h2>\n<ul>\n";
    for (const std::string& note : document.notes)
      body += fmt::format("<li>{}</li>\n", report::html_escaped(note));
    body += "</ul>\n";
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>mla-verify "
      "run</title>\n"
      "<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      report::kHtmlStyle, body);
}

}  // namespace mla::verify_app
