// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <variant>

#include "report/record.hpp"

/// The one list of a record's fields: the JSON codec and the table columns both walk it.
namespace mla::report {

struct RecordField {
  using Member = std::variant<std::string BenchRecord::*, std::int64_t BenchRecord::*,
                              std::optional<double> BenchRecord::*>;
  Column column;  ///< key in JSON and CSV, title and digits in tables
  Member member;
  bool in_table = false;  ///< shown to people; all fields are shown to programs
  bool axis = false;      ///< says what was measured, not how it went
};

[[nodiscard]] std::span<const RecordField> record_fields();
[[nodiscard]] Cell get(const BenchRecord& record, const RecordField& field);

}  // namespace mla::report
