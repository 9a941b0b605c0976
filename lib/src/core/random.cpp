// SPDX-License-Identifier: Apache-2.0
#include "mla/random.hpp"

#include <cmath>
#include <numbers>

namespace mla {
namespace {

constexpr double kUlp53 = 0x1.0p-53;

/// The two 64-bit halves of one block.
std::array<std::uint64_t, 2> block(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words =
      philox_4x32_10({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
  return {words[0] | std::uint64_t{words[1]} << 32, words[2] | std::uint64_t{words[3]} << 32};
}

}  // namespace

std::uint64_t CounterRng::bits(std::uint64_t index) const noexcept {
  return block(seed_, stream_, index)[0];
}

double CounterRng::uniform(std::uint64_t index) const noexcept {
  return static_cast<double>(bits(index) >> 11) * kUlp53;
}

double CounterRng::normal(std::uint64_t index) const noexcept {
  const auto [a, b] = block(seed_, stream_, index);
  const double radius_from = static_cast<double>((a >> 11) + 1) * kUlp53;  // (0, 1]: its logarithm is finite
  const double angle = static_cast<double>(b >> 11) * kUlp53;
  return std::sqrt(-2.0 * std::log(radius_from)) * std::cos(2.0 * std::numbers::pi * angle);
}

std::int64_t CounterRng::between(std::uint64_t index, std::int64_t low, std::int64_t high) const noexcept {
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t draw = bits(index);
  const std::uint64_t count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (count == 0) return static_cast<std::int64_t>(draw);  // all 2^64 integers
  // The high half of a product instead of a remainder: as even (bias below count / 2^64) and without a
  // division.
  const auto offset = static_cast<std::uint64_t>(static_cast<Wide>(draw) * count >> 64);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
}

}  // namespace mla
