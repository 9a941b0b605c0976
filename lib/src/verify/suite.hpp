// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/backend.hpp"
#include "verify/axes.hpp"
#include "verify/case.hpp"

namespace mla::verify {

/// The cases of a run and how they were chosen.
struct Suite {
  std::string name;
  std::vector<Case> cases;  ///< cheapest first
  std::int64_t pairs = 0;   ///< pairs of levels of the design's axes
  std::int64_t covered =
      0;  ///< of them tried by some case (the others contradict each other or cost too much)
};

/// Arithmetic of judging a case, in floating-point operations: what a suite's budget is counted in.
[[nodiscard]] double work_of(const Case& c);

/// A pairwise design over dims, heads, space, lengths, q_len, mask or index, block size, types, values,
/// splits, memory layout and poison. Lengths are those around the edges that the backends name (tiles, pages,
/// splits). "quick": under a minute on two CPU cores. "full": more levels and longer cases.
[[nodiscard]] Suite make_suite(std::string_view name, std::span<const Backend* const> backends,
                               std::uint64_t seed);

/// Draws cases at random from the axes of a suite: what a fuzzer runs.
class CaseSource {
 public:
  /// `wide`: the axes of "full". `largest`: most floating-point operations a case may need.
  CaseSource(bool wide, std::span<const Backend* const> backends, double largest);
  /// The same case for the same seed.
  [[nodiscard]] Case random_case(std::uint64_t seed) const;

 private:
  std::vector<Axis> axes_;
  double largest_;
};

/// A source of cases like those of a suite. Throws kInvalidArgument for an unknown name.
[[nodiscard]] CaseSource suite_source(std::string_view name, std::span<const Backend* const> backends);

/// Names that make_suite takes.
[[nodiscard]] std::vector<std::string> suite_names();

/// Cases from text, one a line; empty lines and lines starting with # are skipped. Throws kParse naming the
/// line.
[[nodiscard]] std::vector<Case> parse_cases(std::string_view text, std::string_view origin);

}  // namespace mla::verify
