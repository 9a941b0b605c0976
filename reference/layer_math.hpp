// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mla/layer.hpp"

/// The pieces that layer and compressor are made of, in either arithmetic.
namespace mla::reference::detail {

/// Throws kInvalidArgument unless the table has `positions` rows for `width` rotated channels.
void require_rope(const RopeTable& table, std::int64_t positions, std::int64_t width);

/// Turns pairs of channels by the angles of a table row.
template <class Scalar>
class Rotation {
 public:
  Rotation(const RopeTable& table, RopeLayout input, RopeLayout output);
  /// Rotates x [R] in place by row `position` of the table.
  void apply(std::int64_t position, Scalar* x) const;

 private:
  std::int64_t half_;
  RopeLayout input_, output_;
  std::vector<Scalar> cos_, sin_;
};

/// y [rows, out] = x [rows, in] weight^T + bias; weight [out, in],
/// bias [out] or empty.
template <class Scalar>
[[nodiscard]] std::vector<Scalar> linear(const Scalar* x, std::int64_t rows, std::int64_t in,
                                         const Scalar* weight, std::int64_t out, std::span<const double> bias,
                                         int threads);

/// x [rows, width] in place: x * rsqrt(mean(x^2) + eps) * weight; `x_stride` elements from row to row.
template <class Scalar>
void normalize_rows(Scalar* x, std::int64_t rows, std::int64_t x_stride, std::span<const double> weight,
                    double eps);

/// Rows of `hidden`, after checking it against the config. Throws kInvalidArgument.
[[nodiscard]] std::int64_t token_count(const LayerConfig& config, std::span<const double> hidden);

/// Throws kInvalidArgument unless the config's widths are sane.
void require_config(const LayerConfig& config);

}  // namespace mla::reference::detail
