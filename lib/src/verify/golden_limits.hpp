// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "mla/layer.hpp"

/// What golden tensors may differ by, relative to the largest value of the tensor. Derivations in
/// docs/numerics.md, "Golden vectors".
namespace mla::verify {

/// The f64 path against f64 tensors: the order of sums is all that differs.
inline constexpr double kF64Limit = 1e-10;

struct GoldenLimits {
  double rows_f32 = 0;   ///< c_kv, k_pe computed in single precision
  double query_f32 = 0;  ///< q
  double out_f32 = 0;    ///< out
  double rows_bf16 = 0;  ///< c_kv, k_pe computed in bf16
  double out_bf16 = 0;   ///< out
};

/// `keys`: longest sequence; `max_score`: largest |scaled score|, which is how strongly the softmax
/// amplifies.
[[nodiscard]] GoldenLimits golden_limits(const LayerConfig& layer, std::int64_t keys, double max_score);

/// cos and sin of an angle that was computed in single precision: `angle` in radians, amplitude as in the
/// table.
[[nodiscard]] double rope_limit(double angle, double amplitude);

}  // namespace mla::verify
