// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "model/json_write.hpp"
#include "report/render.hpp"

namespace mla::report {
namespace {

/// JSON has no NaN and no infinity: such a value is left out and "<key>_not_finite" says which it was.
void put(json::Object& object, const std::string& key, const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) {
    json::put(object, key, json::to_value(*text));
  } else if (const auto* integer = std::get_if<std::int64_t>(&cell)) {
    json::put(object, key, json::to_value(*integer));
  } else if (const auto* truth = std::get_if<bool>(&cell)) {
    json::put(object, key, json::to_value(*truth));
  } else if (const auto* real = std::get_if<double>(&cell)) {
    if (std::isfinite(*real)) {
      json::put(object, key, json::to_value(*real));
    } else {
      json::put(object, key + "_not_finite", json::to_value(fmt::format("{}", *real)));
    }
  }
}

}  // namespace

std::string render_json(const Document& document) {
  json::Object facts;
  for (const auto& [key, value] : document.facts) put(facts, key, value);
  json::Object tables;
  for (const Table& table : document.tables) {
    json::Array rows;
    for (const auto& row : table.rows) {
      json::Object object;
      for (std::size_t c = 0; c < row.size(); ++c) put(object, table.columns[c].key, row[c]);
      rows.emplace_back(std::move(object));
    }
    json::put(tables, table.name, json::Value(std::move(rows)));
  }
  json::Object root{{"schema_version", json::to_value(1)}, {"kind", json::to_value(document.kind)}};
  if (!document.headline.empty()) root.emplace_back("headline", json::to_value(document.headline));
  root.emplace_back("facts", std::move(facts));
  root.emplace_back("tables", std::move(tables));
  if (!document.notes.empty()) root.emplace_back("notes", json::to_value(document.notes));
  return json::dump(json::Value(std::move(root)), 2) + '\n';
}

}  // namespace mla::report
