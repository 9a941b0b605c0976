// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program.hpp"

/// The subcommands of mla-bench: what the user asked for, as plain values, and what does it.
namespace mla::bench {

struct RunRequest {
  std::string spec;  ///< name, path, "-"; empty: flags alone
  /// Key of the sweep and its text, in the order given, e.g. {"window", "full,256"}.
  std::vector<std::pair<std::string, std::string>> overrides;
  std::string filter;
  std::string out;           ///< folder; empty: results/<device>/<date>-<name>; "none": nothing is kept
  std::string gbench_json;   ///< file, or empty
  std::string memory_limit;  ///< size, or empty: half of what is free
  bool resume = false;
  bool dry_run = false;
  bool print_spec = false;
  std::string command_line;  ///< for the records
  cli::Output output;
};
[[nodiscard]] int run(const RunRequest& request);

struct ListRequest {
  std::string what;    ///< backends, models, gpus, specs, axes
  std::string shape;   ///< backends: answer for this shape, with reasons
  bool names = false;  ///< one name a line, for shells
  cli::Output output;
};
[[nodiscard]] int list(const ListRequest& request);

}  // namespace mla::bench
