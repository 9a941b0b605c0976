// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace mla::kernels {

/// Division of 0 .. 2^31 - 1 by a divisor known to the host, as a product and a shift: constexpr, so callable
/// on both sides. With s = ceil(log2 d) and m = ceil(2^(31 + s) / d), n m / 2^(31 + s) exceeds n / d by less
/// than 1 / d.
struct FastDivide {
  std::uint32_t multiplier = std::uint32_t{1} << 31;
  std::int32_t shift = 31;

  constexpr FastDivide() = default;
  constexpr explicit FastDivide(std::int32_t divisor) {
    const auto d = static_cast<std::uint64_t>(divisor);
    shift = 31 + static_cast<std::int32_t>(std::bit_width(d - 1));
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + d - 1) / d);
  }
  [[nodiscard]] constexpr std::int32_t quotient(std::int32_t n) const {
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)) * multiplier >>
                                     shift);
  }
};

}  // namespace mla::kernels
