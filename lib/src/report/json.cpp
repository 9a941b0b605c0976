// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/render.hpp"

namespace mla::report {
namespace {

using Json = nlohmann::ordered_json;

/// JSON has no NaN and no infinity: such a value is left out and "<key>_not_finite" says which it was.
void put(Json& object, const std::string& key, const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) {
    object[key] = *text;
  } else if (const auto* integer = std::get_if<std::int64_t>(&cell)) {
    object[key] = *integer;
  } else if (const auto* truth = std::get_if<bool>(&cell)) {
    object[key] = *truth;
  } else if (const auto* real = std::get_if<double>(&cell)) {
    if (std::isfinite(*real)) {
      object[key] = *real;
    } else {
      object[key + "_not_finite"] = fmt::format("{}", *real);
    }
  }
}

}  // namespace

std::string render_json(const Document& document) {
  Json root = Json::object();
  root["schema_version"] = 1;
  root["kind"] = document.kind;
  if (!document.headline.empty()) root["headline"] = document.headline;
  Json facts = Json::object();
  for (const auto& [key, value] : document.facts) put(facts, key, value);
  root["facts"] = std::move(facts);
  Json tables = Json::object();
  for (const Table& table : document.tables) {
    Json rows = Json::array();
    for (const auto& row : table.rows) {
      Json object = Json::object();
      for (std::size_t c = 0; c < row.size(); ++c) put(object, table.columns[c].key, row[c]);
      rows.push_back(std::move(object));
    }
    tables[table.name] = std::move(rows);
  }
  root["tables"] = std::move(tables);
  if (!document.notes.empty()) root["notes"] = document.notes;
  // A path or a driver's answer may hold bytes that are no UTF-8: replaced, not thrown over.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace mla::report
