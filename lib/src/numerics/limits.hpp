// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mla::limits {

/// Standard deviation of rounding to nearest for a value just above a power of two, in units of u: uniform in
/// +-u.
inline constexpr double kUniform = 0.57735026918962576;  // 1/sqrt(3)
/// Half the spacing of single-precision subnormals: what one more addition down there may lose.
inline constexpr double kTiniest = 0x1p-150;

}  // namespace mla::limits
