// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The constants of judgement. docs/numerics.md says where each comes from; a change needs a reason there.
namespace mla::limits {

/// Random rounding errors: limit in standard deviations. 5 leaves one false alarm in 1.7 million rows if
/// every error were of the worst mantissa; for usual mantissas (kUniform is 1.36 times the average) it
/// is 6.8.
inline constexpr double kSigmas = 5.0;
/// Standard deviation of rounding to nearest for a value just above a power of two, in units of u: uniform in
/// +-u.
inline constexpr double kUniform = 0.57735026918962576;  // 1/sqrt(3)
/// Part of a score's error that does not depend on its size, in units of u: exp, log and the sum of the softmax.
inline constexpr double kScoreUnits = 8.0;
/// Growth of a sum over keys, in units of u: kSumBase + keys * kSumPerKey (one rounding an MMA step of 16
/// keys).
inline constexpr double kSumBase = 8.0;
inline constexpr double kSumPerKey = 1.0 / 16.0;
/// Bias that is never an alarm, in ulp: sums that truncate, exponentials that are one-sided.
inline constexpr double kBiasFloor = 0.02;
/// Standard errors a mean may lie from 0.
inline constexpr double kBiasSigmas = 5.0;
/// Fewest rows, and fewest columns, for which a bias is judged.
inline constexpr int kBiasSamples = 32;

}  // namespace mla::limits
