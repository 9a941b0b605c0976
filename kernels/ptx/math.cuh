// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mla::MLA_ARCH_NS::ptx {

/// ex2.approx.ftz: 2^x with a relative error of at most 2^-22; -inf gives 0, results below 2^-126 too. NaN
/// stays NaN.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace mla::MLA_ARCH_NS::ptx
