// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "verify/golden_data.hpp"
#include "verify/run_case.hpp"

namespace mla::verify {

enum class GoldenMask : std::uint8_t { kCausal, kWindowSink, kTopk };

/// The ways in which one sequence of a set is recomputed in double precision. `data` must outlive it.
class GoldenPaths {
 public:
  GoldenPaths(const GoldenData& data, std::size_t sequence);

  /// All tokens at once.
  [[nodiscard]] LayerStep full(LayerForm form, GoldenMask mask) const;
  /// The last `tail` tokens, `step` at a time, from a paged cache that holds the ones before; out [tail,
  /// hidden].
  [[nodiscard]] std::vector<double> from_cache(LayerForm form, std::int64_t tail, std::int64_t step) const;
  /// Largest |scaled score| that any query has.
  [[nodiscard]] double max_score(const LayerStep& step) const;
  /// A backend on the queries and rows of `step`; nothing if it does not serve double precision in head
  /// space.
  [[nodiscard]] std::optional<Execution> run_backend(const Backend& backend, const LayerStep& step,
                                                     GoldenMask mask) const;

 private:
  [[nodiscard]] RopeTable rope_rows(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] reference::Visibility visible(GoldenMask mask) const;

  const GoldenData& data_;
  const GoldenVariant& variant_;
  std::int64_t tokens_;
  double scale_ = 0;
  std::vector<double> hidden_;
  RopeTable rope_;
  std::vector<std::int32_t> topk_;
};

/// [S, H] -> [H, S].
[[nodiscard]] std::vector<double> heads_first(std::span<const double> x, int heads);
/// Rows of width a + b -> rows of width a and rows of width b.
[[nodiscard]] std::pair<std::vector<double>, std::vector<double>> split_columns(std::span<const double> x,
                                                                                int a, int b);

}  // namespace mla::verify
