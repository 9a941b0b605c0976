// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/record.hpp"

namespace mla::report {

/// Sentences that answer a sweep's question as far as its numbers do: how much faster one backend is than
/// another over the shapes both did, and what a window saves against the same shape without. Only from
/// measured points.
[[nodiscard]] std::vector<std::string> findings(std::span<const BenchRecord> records);

/// How many points ended how, as the first line of a report.
[[nodiscard]] std::string tally(std::span<const BenchRecord> records);

}  // namespace mla::report
