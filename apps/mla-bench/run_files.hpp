// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "report/compare.hpp"
#include "report/record.hpp"

namespace mla::bench {

/// Records and environments of all runs named: a file, a folder with run.jsonl, or a folder of such folders.
/// Warnings go to stderr. Throws kIo where there is none, kParse naming file and line.
[[nodiscard]] report::RunFile read_runs(const std::vector<std::string>& paths);

/// Only the records that meet a condition of --where; all if it is empty.
void select(std::vector<report::BenchRecord>& records, const std::string& where);

/// Exit code of a comparison under --fail-on slower|any|none. Throws kInvalidArgument for another word.
[[nodiscard]] int verdict(const report::RunChange& change, const std::string& fail_on);

}  // namespace mla::bench
