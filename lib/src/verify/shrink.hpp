// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify/case.hpp"
#include "verify/judge.hpp"

namespace mla::verify {

/// In which way a case fails, and a sentence.
struct Finding {
  Failure failure = Failure::kNone;
  std::string reason;
};
/// What a case shows, or nothing if it does not fail (it passes, or the backend refuses it).
using Failing = std::function<std::optional<Finding>(const Case&)>;
/// The same question put to a judge. `oracle` may be null: the case is compared with the reference.
[[nodiscard]] Failing failing_on(Judge& judge, const Participant& participant, const Oracle* oracle,
                                 int repeats);

struct ShrinkOptions {
  int most_tries = 2000;
  std::function<bool()> stop;                            ///< may be empty
  std::function<void(const Case&, int tried)> progress;  ///< told each case that still fails; may be empty
};

struct Shrunk {
  Case c;  ///< fails, and nothing simpler that was tried does
  Finding finding;
  int tried = 0;
  bool stopped = false;  ///< by `stop` or most_tries: may not be the smallest
};

/// Reduces a failing case step by step while it still fails in the same way: requests, heads, lengths,
/// widths, mask, index, splits, types, values and memory layout. `first` is what `c` shows.
[[nodiscard]] Shrunk shrink(const Case& c, const Finding& first, const Failing& failing,
                            const ShrinkOptions& options = {});

/// Cases simpler than `c` in one respect, most promising first.
[[nodiscard]] std::vector<Case> simpler_cases(const Case& c);

}  // namespace mla::verify
