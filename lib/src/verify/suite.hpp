// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/backend.hpp"
#include "mla/random.hpp"
#include "verify/axes.hpp"
#include "verify/case.hpp"

namespace mla::verify {

/// A pair of levels that no case has, and what stands against it.
struct PairLeftOut {
  std::string first, second;  ///< "axis level"
  std::string why;
};

/// The cases of a run and how they were chosen.
struct Suite {
  std::string name;
  std::vector<Case> cases;  ///< cheapest first
  std::int64_t pairs = 0;   ///< pairs of levels of the design's axes
  std::int64_t covered =
      0;  ///< of them tried by some case (the others contradict each other or cost too much)
  std::vector<PairLeftOut> left_out;  ///< the others
};

/// Arithmetic of judging a case, in floating-point operations: what a suite's budget is counted in.
[[nodiscard]] double work_of(const Case& c);
/// Bytes of host memory that judging it takes, about.
[[nodiscard]] double bytes_of(const Case& c) noexcept;

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
  /// Up to `wanted` cases that are taken: found at random, then by changing a few axes of one that was found.
  [[nodiscard]] std::vector<Case> cases_taken(const std::function<bool(const Case&)>& takes,
                                              std::size_t wanted, std::uint64_t seed) const;

 private:
  using Row = std::vector<int>;  // a level of each axis
  void draw(Row& row, std::size_t axis, const CounterRng& rng, std::uint64_t counter) const;
  [[nodiscard]] std::optional<Case> affordable(const Row& row, std::uint64_t seed) const;

  std::vector<Axis> axes_;
  double largest_;
};

/// A source of cases like those of a suite. Throws kInvalidArgument for an unknown name.
[[nodiscard]] CaseSource suite_source(std::string_view name, std::span<const Backend* const> backends);

/// Adds random cases of the suite's kind for who takes few of its cases, because it serves few shapes, types or
/// lengths, until everyone has some tens. `takes[i]`: whether the i-th participant takes a case. Nothing is added to a
/// suite that is no kind (a file).
void top_up(Suite& suite, const CaseSource& source, std::span<const std::function<bool(const Case&)>> takes,
            std::uint64_t seed);

/// Names that make_suite takes.
[[nodiscard]] std::vector<std::string> suite_names();

/// Cases from text, one a line; empty lines and lines starting with # are skipped. Throws kParse naming the
/// line.
[[nodiscard]] std::vector<Case> parse_cases(std::string_view text, std::string_view origin);

}  // namespace mla::verify
