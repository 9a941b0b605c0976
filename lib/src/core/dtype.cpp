// SPDX-License-Identifier: Apache-2.0
#include "mla/dtype.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

/// A binary floating-point format of sign, `Exponent` and `Mantissa` bits with the usual bias and denormals.
/// Finite == true: the OCP "fn" flavour, which has no infinity and gives up one mantissa of the top exponent
/// for NaN.
template <int Exponent, int Mantissa, bool Finite>
struct Minifloat {
  static constexpr int kBias = (1 << (Exponent - 1)) - 1;
  static constexpr int kLowest = 1 - kBias;  // exponent of the smallest normal number
  static constexpr std::uint32_t kSign = 1U << (Exponent + Mantissa);
  static constexpr std::uint32_t kTop = ((1U << Exponent) - 1) << Mantissa;  // infinity, unless Finite
  static constexpr std::uint32_t kFiniteNan = kSign - 1;

  /// One rounding from double, to nearest, ties to even. All in integers: exact whatever the rounding mode or
  /// flush-to-zero flag of the calling thread.
  static constexpr std::uint32_t encode(double value) noexcept {
    constexpr std::uint64_t kHidden = std::uint64_t{1} << 52;
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const std::uint32_t sign = bits >> 63 != 0 ? kSign : 0U;
    const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
    const std::uint64_t fraction = magnitude & (kHidden - 1);
    const int exponent = static_cast<int>(magnitude >> 52) - 1023;
    if (exponent == 1024 && fraction != 0) {  // NaN; the head of its payload survives, made quiet
      if constexpr (Finite) return sign | kFiniteNan;
      return sign | kTop | 1U << (Mantissa - 1) | static_cast<std::uint32_t>(fraction >> (52 - Mantissa));
    }
    // Bits that fall off the end: the excess mantissa, and more below the smallest normal number.
    const int shift = 52 - Mantissa + std::max(0, kLowest - exponent);
    if (shift > 53) return sign;  // below half of the smallest denormal
    const std::uint64_t significand = fraction | kHidden;
    const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
    const std::uint64_t half = std::uint64_t{1} << (shift - 1);
    std::uint64_t kept = significand >> shift;
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    // The hidden bit in `kept` adds one to the exponent field, and so does the carry of a mantissa that
    // rounds up.
    const std::uint64_t field = static_cast<std::uint64_t>(std::max(exponent, kLowest) + kBias - 1);
    const std::uint64_t encoded = (field << Mantissa) + kept;
    constexpr std::uint64_t kLimit = Finite ? kFiniteNan - 1 : kTop;
    return sign | static_cast<std::uint32_t>(std::min(encoded, kLimit));
  }

  static constexpr float decode(std::uint32_t bits) noexcept {
    const std::uint32_t sign = (bits & kSign) << (31 - Exponent - Mantissa);
    const std::uint32_t magnitude = bits & (kSign - 1);
    const std::uint32_t widened = magnitude << (23 - Mantissa);
    const bool special = Finite ? magnitude == kFiniteNan : magnitude >= kTop;
    if (special) return std::bit_cast<float>(sign | 0x7F800000U | (widened & 0x7FFFFFU));
    if constexpr (Exponent == 8) return std::bit_cast<float>(sign | widened);
    if (magnitude >> Mantissa == 0) {
      constexpr float kQuantum =
          std::bit_cast<float>(static_cast<std::uint32_t>(kLowest - Mantissa + 127) << 23);
      const float denormal = static_cast<float>(magnitude) * kQuantum;
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(denormal) | sign);
    }
    return std::bit_cast<float>(sign | (widened + (static_cast<std::uint32_t>(127 - kBias) << 23)));
  }
};

using BF16 = Minifloat<8, 7, false>;
using F16 = Minifloat<5, 10, false>;
using E4M3 = Minifloat<4, 3, true>;

constexpr auto kE4M3Values = [] {
  std::array<float, 256> values{};
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = E4M3::decode(i);
  return values;
}();

constexpr std::uint8_t kE8M0Nan = 0xFF;

std::uint8_t encode_e8m0(double value) noexcept {
  if (std::isnan(value) || value < 0) return kE8M0Nan;  // the type has no sign
  if (value <= 0x1.0p-127) return 0;
  if (value >= 0x1.0p127) return 254;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int up = (bits & ((std::uint64_t{1} << 52) - 1)) != 0 ? 1 : 0;
  return static_cast<std::uint8_t>(static_cast<int>(bits >> 52) - 1023 + up + 127);
}

/// Nearest integer, ties to even, saturated; NaN gives 0.
template <class T>
T to_integer(double value) noexcept {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  // 2^63 - 1 is no double; the first double that does not fit is max + 1, exactly a power of two.
  constexpr double kPast = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2.0;
  if (rounded >= kPast) return std::numeric_limits<T>::max();
  if (rounded <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(rounded);
}

template <class T>
T load(const void* data, std::int64_t index) noexcept {
  T value;  // through memcpy: tensors of a mapped file need not be aligned
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
void store(void* data, std::int64_t index, T value) noexcept {
  std::memcpy(static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(T));
}

struct Alias {
  std::string_view name;
  DType dtype;
};
// Each type's own name first.
constexpr Alias kNames[] = {{"f64", DType::kF64},   {"fp64", DType::kF64},      {"float64", DType::kF64},
                            {"f32", DType::kF32},   {"fp32", DType::kF32},      {"float32", DType::kF32},
                            {"f16", DType::kF16},   {"fp16", DType::kF16},      {"float16", DType::kF16},
                            {"bf16", DType::kBF16}, {"bfloat16", DType::kBF16}, {"e4m3", DType::kE4M3},
                            {"fp8", DType::kE4M3},  {"e8m0", DType::kE8M0},     {"i64", DType::kI64},
                            {"i32", DType::kI32},   {"fp8_e4m3", DType::kE4M3}, {"u8", DType::kU8}};

}  // namespace

std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kE4M3:
    case DType::kE8M0:
    case DType::kU8:
      return 1;
  }
  return 0;
}

std::string_view name_of(DType dtype) noexcept {
  for (const Alias& alias : kNames) {
    if (alias.dtype == dtype) return alias.name;
  }
  return "?";
}

DType parse_dtype(std::string_view text) {
  for (const Alias& alias : kNames) {
    if (alias.name == text) return alias.dtype;
  }
  std::vector<std::string> names;
  for (const Alias& alias : kNames) {
    if (alias.name == name_of(alias.dtype)) names.emplace_back(alias.name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is not an element type; allowed: {}", text::quoted(text), text::join_or(names)),
              text::suggestion(text, names));
}

double unit_roundoff(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
      return 0x1.0p-53;
    case DType::kF32:
      return 0x1.0p-24;
    case DType::kF16:
      return 0x1.0p-11;
    case DType::kBF16:
      return 0x1.0p-8;
    case DType::kE4M3:
      return 0x1.0p-4;
    case DType::kE8M0:
      return 1.0;  // rounds up to the next power of two: off by less than the value itself
    case DType::kI64:
    case DType::kI32:
    case DType::kU8:
      return 0.0;
  }
  return 0.0;
}

float bf16_to_float(std::uint16_t bits) noexcept {
  return BF16::decode(bits);
}
std::uint16_t float_to_bf16(float value) noexcept {
  return static_cast<std::uint16_t>(BF16::encode(value));
}
float f16_to_float(std::uint16_t bits) noexcept {
  return F16::decode(bits);
}
std::uint16_t float_to_f16(float value) noexcept {
  return static_cast<std::uint16_t>(F16::encode(value));
}
float e4m3_to_float(std::uint8_t bits) noexcept {
  return kE4M3Values[bits];
}
std::uint8_t float_to_e4m3(float value) noexcept {
  return static_cast<std::uint8_t>(E4M3::encode(value));
}
float e8m0_to_float(std::uint8_t bits) noexcept {
  if (bits == kE8M0Nan) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0F, static_cast<int>(bits) - 127);
}
std::uint8_t float_to_e8m0(float value) noexcept {
  return encode_e8m0(value);
}

double round_to(DType dtype, double value) noexcept {
  std::uint64_t element = 0;
  store_element(&element, dtype, 0, value);
  return load_element(&element, dtype, 0);
}

double load_element(const void* data, DType dtype, std::int64_t index) noexcept {
  switch (dtype) {
    case DType::kF64:
      return load<double>(data, index);
    case DType::kF32:
      return load<float>(data, index);
    case DType::kF16:
      return f16_to_float(load<std::uint16_t>(data, index));
    case DType::kBF16:
      return bf16_to_float(load<std::uint16_t>(data, index));
    case DType::kE4M3:
      return e4m3_to_float(load<std::uint8_t>(data, index));
    case DType::kE8M0:
      return e8m0_to_float(load<std::uint8_t>(data, index));
    case DType::kI64:
      return static_cast<double>(load<std::int64_t>(data, index));
    case DType::kI32:
      return load<std::int32_t>(data, index);
    case DType::kU8:
      return load<std::uint8_t>(data, index);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void store_element(void* data, DType dtype, std::int64_t index, double value) noexcept {
  switch (dtype) {
    case DType::kF64:
      return store(data, index, value);
    case DType::kF32:
      return store(data, index, static_cast<float>(value));
    case DType::kF16:
      return store(data, index, static_cast<std::uint16_t>(F16::encode(value)));
    case DType::kBF16:
      return store(data, index, static_cast<std::uint16_t>(BF16::encode(value)));
    case DType::kE4M3:
      return store(data, index, static_cast<std::uint8_t>(E4M3::encode(value)));
    case DType::kE8M0:
      return store(data, index, encode_e8m0(value));
    case DType::kI64:
      return store(data, index, to_integer<std::int64_t>(value));
    case DType::kI32:
      return store(data, index, to_integer<std::int32_t>(value));
    case DType::kU8:
      return store(data, index, to_integer<std::uint8_t>(value));
  }
}

}  // namespace mla
