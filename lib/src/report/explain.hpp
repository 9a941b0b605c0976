// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "report/record.hpp"
#include "report/table.hpp"

namespace mla::report {

/// One sentence on whether a row's time is good: the least work, the roof that binds, the best possible time,
/// and what can be said about the rest. For a row without a time its reason.
[[nodiscard]] std::string explain(const BenchRecord& record);

/// The same for many: backend, shape, sentence.
[[nodiscard]] Table explained_table(std::span<const BenchRecord> records);

}  // namespace mla::report
