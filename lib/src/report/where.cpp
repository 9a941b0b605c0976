// SPDX-License-Identifier: Apache-2.0
#include "report/where.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "report/render.hpp"

namespace mla::report {
namespace {

/// "4k" -> 4096, "0.5" -> 0.5.
std::optional<double> parse_number(std::string_view text) {
  double scale = 1;
  if (text.ends_with('k')) scale = 1024;
  if (text.ends_with('m')) scale = 1024.0 * 1024;
  if (scale > 1) text.remove_suffix(1);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value * scale;
}

}  // namespace

std::optional<double> as_number(const Cell& cell) {
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  if (const auto* text = std::get_if<std::string>(&cell)) return parse_number(*text);
  return std::nullopt;
}

std::size_t column_index(const std::vector<Column>& columns, std::string_view key) {
  const auto found = std::ranges::find(columns, key, &Column::key);
  if (found != columns.end()) return static_cast<std::size_t>(found - columns.begin());
  std::vector<std::string> keys;
  for (const Column& column : columns) keys.push_back(column.key);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no column {}", text::quoted(key)),
              text::suggestion(key, keys));
}

Where::Where(std::string_view text, const std::vector<Column>& columns) {
  constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"!=", Operator::kUnequal}, {"<=", Operator::kLessEqual}, {">=", Operator::kGreaterEqual},
      {"=", Operator::kEqual},    {"<", Operator::kLess},       {">", Operator::kGreater}};
  for (const std::string& part : text::split(text, ',')) {
    const std::size_t at = part.find_first_of("!=<>");
    const auto op = std::ranges::find_if(kOperators, [&](const auto& o) {
      return at != std::string::npos && std::string_view(part).substr(at).starts_with(o.first);
    });
    if (op == std::end(kOperators) || at == 0) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("the condition {} is not one", text::quoted(part)),
                  "write it like window=4k or kv>=32k, several with commas");
    }
    Condition condition{column_index(columns, std::string_view(part).substr(0, at)), op->second, {}};
    const std::string value = part.substr(at + op->first.size());
    if (const std::optional<double> number = parse_number(value)) {
      condition.value = *number;
    } else if (op->second == Operator::kEqual || op->second == Operator::kUnequal) {
      condition.value = value;
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the condition {} compares with {}, which is no number", text::quoted(part),
                              text::quoted(value)));
    }
    conditions_.push_back(std::move(condition));
  }
}

bool Where::matches(const std::vector<Cell>& row) const {
  return std::ranges::all_of(conditions_, [&](const Condition& condition) {
    const Cell& cell = row[condition.column];
    if (const auto* text = std::get_if<std::string>(&condition.value)) {
      return (show_exact(cell) == *text) == (condition.op == Operator::kEqual);
    }
    const double want = std::get<double>(condition.value);
    const std::optional<double> have = as_number(cell);
    switch (condition.op) {
      case Operator::kEqual:
        return have && *have == want;
      case Operator::kUnequal:
        return !have || *have != want;
      case Operator::kLess:
        return have && *have < want;
      case Operator::kLessEqual:
        return have && *have <= want;
      case Operator::kGreater:
        return have && *have > want;
      case Operator::kGreaterEqual:
        return have && *have >= want;
    }
    return false;
  });
}

}  // namespace mla::report
