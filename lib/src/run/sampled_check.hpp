// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "mla/backend.hpp"
#include "verify/problem.hpp"
#include "verify/run_case.hpp"

namespace mla::run {

/// Outcome of comparing a run with the reference before it is timed.
struct CheckResult {
  bool passed = false;
  std::string reason;  ///< what is wrong, or empty
  double share = 0;    ///< largest share of the error budget among the rows looked at
  std::int64_t rows = 0;
};

/// Compares some (token, head) rows of a finished run with the fp64 reference: the first token of the first request, the
/// last token of the last one, then random ones, on the first, the last and two random heads, as many as the reference
/// can compute within about a second, at least one. Limits are those of mla-verify.
[[nodiscard]] CheckResult check_sample(const verify::Problem& problem, const Backend& backend,
                                       const verify::Execution& run);

}  // namespace mla::run
