// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention.hpp"
#include "check.hpp"

namespace mla::reference {
namespace detail {
namespace {

/// Merges one row; out_of(part) and lse_of(part) give the parts' values.
template <class Scalar, class OutOf, class LseOf>
void merge_row(std::int64_t parts, std::int64_t width, OutOf out_of, LseOf lse_of, Scalar* out, Scalar& lse) {
  constexpr Scalar kEmpty = -std::numeric_limits<Scalar>::infinity();
  Scalar max = kEmpty;
  for (std::int64_t part = 0; part < parts; ++part) {
    if (lse_of(part) > max) max = lse_of(part);
  }
  std::fill_n(out, width, Scalar{0});
  const Scalar shift = max == kEmpty ? Scalar{0} : max;  // all parts empty, or NaN, which must come through
  Scalar sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    if (lse_of(part) == kEmpty) continue;  // whatever its output holds
    const Scalar weight = std::exp(lse_of(part) - shift);
    sum += weight;
    const Scalar* from = out_of(part);
    for (std::int64_t d = 0; d < width; ++d) out[d] += weight * from[d];
  }
  if (sum != 0) {
    for (std::int64_t d = 0; d < width; ++d) out[d] /= sum;
  }
  lse = shift + std::log(sum);
}

}  // namespace

template <class Scalar>
void merge_parts(std::int64_t parts, std::int64_t rows, std::int64_t width, const Scalar* part_out,
                 const Scalar* part_lse, Scalar* out, Scalar* lse) {
  for (std::int64_t row = 0; row < rows; ++row) {
    merge_row(
        parts, width, [&](std::int64_t part) { return part_out + (part * rows + row) * width; },
        [&](std::int64_t part) { return part_lse[part * rows + row]; }, out + row * width, lse[row]);
  }
}

template void merge_parts(std::int64_t, std::int64_t, std::int64_t, const double*, const double*, double*,
                          double*);
template void merge_parts(std::int64_t, std::int64_t, std::int64_t, const float*, const float*, float*,
                          float*);

}  // namespace detail

AttentionOutput merge(std::span<const AttentionOutput> parts, std::int64_t rows, int width) {
  detail::require_at_least("the number of parts to merge", static_cast<std::int64_t>(parts.size()), 1);
  detail::require_at_least("rows", rows, 0);
  detail::require_at_least("width", width, 1);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    detail::require_size(fmt::format("out of part {}", i), parts[i].out.size(), "[rows, width]",
                         {rows, width});
    detail::require_size(fmt::format("lse of part {}", i), parts[i].lse.size(), "[rows]", {rows});
  }
  AttentionOutput merged;
  merged.out.resize(static_cast<std::size_t>(rows * width));
  merged.lse.resize(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    detail::merge_row(
        static_cast<std::int64_t>(parts.size()), width,
        [&](std::int64_t part) { return parts[static_cast<std::size_t>(part)].out.data() + row * width; },
        [&](std::int64_t part) {
          return parts[static_cast<std::size_t>(part)].lse[static_cast<std::size_t>(row)];
        },
        merged.out.data() + row * width, merged.lse[static_cast<std::size_t>(row)]);
  }
  return merged;
}

}  // namespace mla::reference
