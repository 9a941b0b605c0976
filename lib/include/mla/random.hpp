// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "mla/export.h"

namespace mla {

/// Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11): a
/// bijection of 128-bit counters for each 64-bit key. constexpr and in the header, so that device code gives
/// the same numbers.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox_4x32_10(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U,
           key[1] + 0xBB67AE85U};  // golden ratio and sqrt(3) - 1: the paper's Weyl steps
  }
  return counter;
}

/// Counter-based random numbers: value = f(seed, stream, index). The same on CPU and GPU, independent of
/// order and thread count. One Philox block a value: key = seed, counter = (index, stream), low word first;
/// `stream` names the tensor, `index` the element.
class MLA_EXPORT CounterRng {
 public:
  explicit constexpr CounterRng(std::uint64_t seed, std::uint64_t stream = 0) noexcept
      : seed_(seed), stream_(stream) {}
  /// The block's first two words, low word first.
  [[nodiscard]] std::uint64_t bits(std::uint64_t index) const noexcept;
  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double uniform(std::uint64_t index) const noexcept;
  /// Standard normal (Box-Muller on one 128-bit block).
  [[nodiscard]] double normal(std::uint64_t index) const noexcept;
  /// Uniform integer in [low, high]; needs low <= high.
  [[nodiscard]] std::int64_t between(std::uint64_t index, std::int64_t low, std::int64_t high) const noexcept;

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace mla
