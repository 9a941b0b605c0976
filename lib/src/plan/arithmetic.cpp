// SPDX-License-Identifier: Apache-2.0
#include "plan/arithmetic.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::capacity {
namespace {

[[noreturn]] void too_large(std::int64_t a, std::int64_t b, char sign) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} {} {} is too large to count in 64 bits", num(a), sign, num(b)),
              "check the lengths, counts and widths given");
}

}  // namespace

std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) too_large(a, b, '*');
  return product;
}

std::int64_t plus(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) too_large(a, b, '+');
  return sum;
}

std::int64_t round_up(std::int64_t a, std::int64_t step) {
  return times(ceil_div(a, step), step);
}

std::string num(std::int64_t value) {
  return text::with_thousands(value);
}

std::string num(double value) {
  constexpr double kExactIntegers = 9007199254740992.0;  // 2^53
  if (std::floor(value) == value && std::abs(value) < kExactIntegers) {
    return num(static_cast<std::int64_t>(value));
  }
  std::string digits = fmt::format("{:.4f}", value);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

std::string gib(std::int64_t bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const auto value = static_cast<double>(bytes);
  if (std::abs(value) < kMiB) return num(bytes) + " B";
  if (std::abs(value) < 1024 * kMiB) return fmt::format("{:.1f} MiB", value / kMiB);
  return fmt::format("{:.2f} GiB", value / (1024 * kMiB));
}

std::int64_t element_bytes(const ElementFormat& format, std::int64_t count, std::string_view what) {
  if (count % format.elements != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cache format {} stores blocks of {} elements, but {} is {} wide", format.name,
                            format.elements, what, count),
                "choose a format without blocks, such as bf16 or fp8");
  }
  return times(count / format.elements, format.bytes);
}

}  // namespace mla::capacity
