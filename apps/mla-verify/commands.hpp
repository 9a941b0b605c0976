// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"

namespace mla::verify_app {

/// mla-verify golden
struct GoldenRequest {
  std::string dir;
  std::vector<std::string> sets;  ///< empty: all
  std::string backends = "all";
  bool summary = false;  ///< one line a set only
  cli::Output output;
};

/// mla-verify run
struct RunRequest {
  std::string suite = "quick";     ///< a name, or a file of cases
  std::vector<std::string> cases;  ///< given as text; then no suite is run
  std::string backends = "all";
  std::vector<std::string> peers;  ///< command lines of kernels in other processes
  std::string filter;              ///< regular expression over the cases' texts
  std::uint64_t seed = 1;
  int show = 20;     ///< passing cases shown in a table
  int repeats = 10;  ///< of the oracle that wants equal bits
  bool list_cases = false;
  bool fail_fast = false;
  bool no_oracles = false;
  std::string junit;
  cli::Output output;
};

/// mla-verify oracles: what each one expects.
struct OraclesRequest {
  cli::Output output;
};

/// mla-verify mutants
struct MutantsRequest {
  std::string suite = "quick";
  std::uint64_t seed = 1;
  std::int64_t ideal_seeds = 1000;
  cli::Output output;
};

int golden(const GoldenRequest& request);
int mutants(const MutantsRequest& request);
int run(const RunRequest& request);
int list_oracles(const OraclesRequest& request);

}  // namespace mla::verify_app
