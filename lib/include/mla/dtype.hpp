// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mla/export.h"
#include "mla/formats.hpp"

namespace mla {

/// Bytes of one element.
[[nodiscard]] MLA_EXPORT std::size_t size_of(DType dtype) noexcept;

/// "f64", "f32", "f16", "bf16", "e4m3", "e8m0", "i64", "i32", "u8".
[[nodiscard]] MLA_EXPORT std::string_view name_of(DType dtype) noexcept;

/// Inverse of name_of; also takes fp64/fp32/fp16, float64/float32/float16, bfloat16, fp8 and fp8_e4m3. Throws
/// kInvalidArgument.
[[nodiscard]] MLA_EXPORT DType parse_dtype(std::string_view text);

/// Unit roundoff u of the type: bf16 2^-8, f16 2^-11, e4m3 2^-4, f32 2^-24, f64 2^-53 (half an ulp at 1).
[[nodiscard]] MLA_EXPORT double unit_roundoff(DType dtype) noexcept;

// ---- conversions, host side; every bit pattern is tested
// ------------------------------------------------------ All round to nearest, ties to even. NaN stays NaN.
// e4m3 is the OCP "fn" form: no infinity, largest 448, 0x7f/0xff are NaN; encoding saturates to +-448 (as
// __nv_cvt with __NV_SATFINITE does). e8m0 is a power of two 2^(b-127), 0xff is NaN; encoding rounds up to
// the next power of two and saturates to 2^-127..2^127; negative values give NaN.

[[nodiscard]] MLA_EXPORT float bf16_to_float(std::uint16_t bits) noexcept;
[[nodiscard]] MLA_EXPORT std::uint16_t float_to_bf16(float value) noexcept;
[[nodiscard]] MLA_EXPORT float f16_to_float(std::uint16_t bits) noexcept;
[[nodiscard]] MLA_EXPORT std::uint16_t float_to_f16(float value) noexcept;
[[nodiscard]] MLA_EXPORT float e4m3_to_float(std::uint8_t bits) noexcept;
[[nodiscard]] MLA_EXPORT std::uint8_t float_to_e4m3(float value) noexcept;
[[nodiscard]] MLA_EXPORT float e8m0_to_float(std::uint8_t bits) noexcept;
[[nodiscard]] MLA_EXPORT std::uint8_t float_to_e8m0(float value) noexcept;

/// Rounds a double once (no double rounding through float) onto the grid of `dtype` and returns it as double.
/// Overflow follows the type: f32/f16/bf16 to infinity, e4m3 and integers saturate. NaN as an integer is 0.
[[nodiscard]] MLA_EXPORT double round_to(DType dtype, double value) noexcept;

/// Reads element `index` of an array of `dtype` as double. kE8M0 included; integers are exact up to 2^53.
[[nodiscard]] MLA_EXPORT double load_element(const void* data, DType dtype, std::int64_t index) noexcept;

/// Writes `value` rounded once to `dtype` as element `index`.
MLA_EXPORT void store_element(void* data, DType dtype, std::int64_t index, double value) noexcept;

}  // namespace mla
