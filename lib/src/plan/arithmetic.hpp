// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mla/capacity.hpp"

/// Integer arithmetic that never wraps, and the text of formulas.
namespace mla::capacity {

/// a * b and a + b; throw kInvalidArgument ("too large to count in 64 bits") instead of wrapping.
[[nodiscard]] std::int64_t times(std::int64_t a, std::int64_t b);
[[nodiscard]] std::int64_t plus(std::int64_t a, std::int64_t b);
/// For a >= 0, b >= 1.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}
[[nodiscard]] std::int64_t round_up(std::int64_t a, std::int64_t step);

/// 70272 -> "70,272".
[[nodiscard]] std::string num(std::int64_t value);
/// Whole numbers without a point, others with up to four digits behind it.
[[nodiscard]] std::string num(double value);
/// "78.2 GiB", "1,152 B" below a mebibyte: for sentences.
[[nodiscard]] std::string gib(std::int64_t bytes);

/// Bytes of `count` elements; a count that is no multiple of the format's block is an error naming `what`.
[[nodiscard]] std::int64_t element_bytes(const ElementFormat& format, std::int64_t count,
                                         std::string_view what);

}  // namespace mla::capacity
