// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_limits.hpp"

#include <cmath>

#include "mla/dtype.hpp"

namespace mla::verify {

GoldenLimits golden_limits(const LayerConfig& layer, std::int64_t keys, double max_score) {
  const MlaDims& d = layer.dims;
  const double f32 = unit_roundoff(DType::kF32);
  const double bf16 = unit_roundoff(DType::kBF16);
  // Rounding errors of a sum of n products walk at random: about sqrt(n) u of a typical result, and n adds up
  // over the stages of a path. Constant work on the way (norms, rotation) counts as kFixed terms.
  constexpr double kFixed = 32;
  const double row_terms = layer.hidden_size + kFixed;
  const double query_terms = layer.hidden_size + layer.q_lora_rank.value_or(0) + kFixed;
  const double out_terms = row_terms + query_terms + 2.0 * d.kv_lora_rank + d.head_width() +
                           static_cast<double>(keys) + static_cast<double>(d.num_heads) * d.v_head_dim;
  // A relative error e of q and k moves scores by e * |score|, weights and so the output by as much again.
  const double amplified = 1 + 2 * max_score;
  GoldenLimits limits;
  limits.rows_f32 = f32 * std::sqrt(row_terms);
  limits.query_f32 = f32 * std::sqrt(query_terms);
  limits.out_f32 = f32 * std::sqrt(out_terms) * amplified;
  // bf16 runs round once a stage, sums are single precision: projection, norm, weight (and rotation: cos,
  // sin, two products, sum) for the rows; ten such points on the way to the output, plus the scores' own two.
  constexpr double kRowRoundings = 5, kOutRoundings = 10;
  limits.rows_bf16 = bf16 * kRowRoundings;
  limits.out_bf16 = bf16 * (kOutRoundings + 2 * max_score);
  return limits;
}

double rope_limit(double angle, double amplitude) {
  // inv_freq, position * inv_freq: two roundings each within u of the angle, and pow within 2 ulp; then cos,
  // sin and the amplitude's product.
  const double f32 = unit_roundoff(DType::kF32);
  return amplitude * f32 * (4 + 6 * std::abs(angle));
}

}  // namespace mla::verify
