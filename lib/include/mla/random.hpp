// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "mla/export.h"

namespace mla {

/// Counter-based random numbers: value = f(seed, stream, index). The same on CPU and GPU, independent of order and
/// thread count. Philox-4x32-10 (Salmon et al., SC'11); `stream` names the tensor, `index` the element.
class MLA_EXPORT CounterRng {
 public:
  explicit constexpr CounterRng(std::uint64_t seed, std::uint64_t stream = 0) noexcept : seed_(seed), stream_(stream) {}
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
