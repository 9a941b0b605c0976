// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "report/record.hpp"

namespace mla::report {

/// One record a point, in the order of their first ones: its time is the median of the repetitions' medians, its
/// interval the hull of theirs, and its samples are all of them. A point that is not "ok" in one repetition is not
/// "ok": the first such record stands for it.
[[nodiscard]] std::vector<BenchRecord> merge_repetitions(std::span<const BenchRecord> records);

}  // namespace mla::report
