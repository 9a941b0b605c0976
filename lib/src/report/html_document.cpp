// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "report/html.hpp"
#include "report/html_page.hpp"
#include "report/render.hpp"

namespace mla::report {

std::string render_html(const Document& document) {
  const std::string title = document.headline.empty() ? document.kind : document.headline.front();
  std::string body = fmt::format("<h1>{}</h1>\n", html_escaped(title));
  for (std::size_t i = 1; i < document.headline.size(); ++i)
    body += fmt::format("<p>{}</p>\n", html_escaped(document.headline[i]));
  if (document.figure) {
    body += html_chart([&] { return figure_script(*document.figure, Picture::kSvg); },
                       document.figure->alternative);
  }
  if (!document.facts.empty()) {
    Table facts{.name = "facts",
                .title = "",
                .columns = {{.key = "fact", .title = "fact"}, {.key = "value", .title = "value"}},
                .rows = {}};
    for (const auto& [key, value] : document.facts) facts.rows.push_back({key, show(value)});
    body += html_table(facts, "facts");
  }
  for (const Table& table : document.tables) {
    body += fmt::format("<h2>{}</h2>\n{}", html_escaped(table.title), html_table(table, table.name));
  }
  if (!document.notes.empty()) {
    body += "<h2>Notes</h2>\n<ul>\n";
    for (const std::string& note : document.notes) body += fmt::format("<li>{}</li>\n", html_escaped(note));
    body += "</ul>\n";
  }
  if (!document.command.empty())
    body += fmt::format("<h2>Command</h2>\n<pre>{}</pre>\n", html_escaped(document.command));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      html_escaped(title), kHtmlStyle, body);
}

}  // namespace mla::report
