// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Google Benchmark as the engine that walks the points: it filters them by name, runs them in order and
/// writes its own JSON, which its compare.py reads. One iteration is one whole adaptive measurement of ours,
/// whose median is the iteration's time.
namespace mla::run {

/// What a point gave Google Benchmark.
struct DriverOutcome {
  double seconds = 0;
  std::string skipped;  ///< why there is no time, or empty
  std::vector<std::pair<std::string, double>> counters;
};

struct DriverPoint {
  std::string name;  ///< several may have the same: repetitions
  std::function<DriverOutcome()> measure;
};

struct DriverOptions {
  std::string filter;              ///< regular expression on names, a leading '-' inverts it; empty: all
  std::filesystem::path json_out;  ///< empty: none
};

/// How many points the filter lets through. Throws kInvalidArgument for a filter that is no regular
/// expression.
[[nodiscard]] std::size_t count_matching(std::span<const DriverPoint> points, const DriverOptions& options);

/// Runs them. An exception of a point ends the walk and is thrown on. Throws kIo if json_out cannot be
/// written.
void drive(std::span<const DriverPoint> points, const DriverOptions& options);

}  // namespace mla::run
