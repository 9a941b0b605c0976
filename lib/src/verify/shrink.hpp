// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify/case.hpp"

namespace mla::verify {

/// Says why a case fails, or nothing if it does not (it passes, or the backend refuses it).
using Failing = std::function<std::optional<std::string>(const Case&)>;

struct ShrinkOptions {
  int most_tries = 2000;
  std::function<bool()> stop;                            ///< may be empty
  std::function<void(const Case&, int tried)> progress;  ///< told each case that still fails; may be empty
};

struct Shrunk {
  Case c;              ///< fails, and nothing simpler that was tried does
  std::string reason;  ///< why
  int tried = 0;
  bool stopped = false;  ///< by `stop` or most_tries: may not be the smallest
};

/// Reduces a failing case step by step while it still fails: requests, heads, lengths, widths, mask, index, splits, values
/// and memory layout. `first_reason` is why `c` fails.
[[nodiscard]] Shrunk shrink(const Case& c, const std::string& first_reason, const Failing& failing,
                            const ShrinkOptions& options = {});

/// Cases simpler than `c` in one respect, most promising first.
[[nodiscard]] std::vector<Case> simpler_cases(const Case& c);

}  // namespace mla::verify
