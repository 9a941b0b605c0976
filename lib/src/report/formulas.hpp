// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "report/record.hpp"

namespace mla::report {

/// The arithmetic behind each record's numbers, with the numbers in it and where they come from: bytes, FLOPs of its
/// strategy, floor, rates. Records without a time have the first two alone, those that are not supported nothing.
[[nodiscard]] Table formulas_table(std::span<const BenchRecord> records);

}  // namespace mla::report
