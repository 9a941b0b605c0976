// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "report/table.hpp"

namespace mla::report {

/// A selection of table rows: "window=4k,kv>=32k,backend!=cpu-expanded"; all conditions must hold. Operators
/// = != < <= > >=; numbers may end in k or m (1024-based); text is compared as text, and only with = and !=.
class Where {
 public:
  /// Throws kInvalidArgument naming the part: no operator, a column the table has not (with a suggestion), <
  /// on a text.
  Where(std::string_view text, const std::vector<Column>& columns);
  [[nodiscard]] bool matches(const std::vector<Cell>& row) const;

 private:
  enum class Operator : std::uint8_t { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual };
  struct Condition {
    std::size_t column;
    Operator op;
    std::variant<double, std::string> value;
  };
  std::vector<Condition> conditions_;
};

/// A cell as a number: integers, reals and texts that are numbers ("256"); nothing else.
[[nodiscard]] std::optional<double> as_number(const Cell& cell);

/// Index of a column by key. Throws kInvalidArgument with a suggestion.
[[nodiscard]] std::size_t column_index(const std::vector<Column>& columns, std::string_view key);

}  // namespace mla::report
