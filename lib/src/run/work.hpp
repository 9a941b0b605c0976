// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "mla/shape.hpp"

/// What an attention call must do at the very least: the numerators of GB/s and GFLOP/s and the floor of its
/// time. Formulas in docs/measurement.md.
namespace mla::run {

struct Work {
  std::int64_t pairs = 0;  ///< (query token, visible key) pairs, over all requests; heads not counted
  std::int64_t rows = 0;   ///< distinct cache rows some query sees
  double bytes = 0;        ///< every visible cache row, q, out, lse and (head space) W_UK, W_UV once
  double absorbed_flops =
      0;  ///< of the absorbed form: 2 H (2L + R) a pair, plus absorption and W_UV in head space
  double expanded_flops =
      0;  ///< of the expanded form: 2 H (P + R + V) a pair, plus 2 H L (P + V) a row; head space only
  /// The fewest FLOPs any form needs: part of the floor, the same for every backend.
  [[nodiscard]] double least_flops() const noexcept;
  /// Of one strategy ("absorbed", "expanded"): what a backend's GFLOP/s is counted with.
  [[nodiscard]] double flops_of(std::string_view strategy) const noexcept;
};

/// With an explicit index (topk > 0) the entries are taken as distinct between the queries of a request: an
/// upper bound of the rows read, exact for one query.
[[nodiscard]] Work count_work(const AttentionShape& shape);

}  // namespace mla::run
