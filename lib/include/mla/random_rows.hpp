// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "mla/formats.hpp"
#include "mla/random.hpp"

/// Random numbers that fill device memory, the same on host and device. Apart from <mla/device_bench.hpp>
/// because device code reads it.
namespace mla {

/// Rows of random numbers in device memory: element i of row r becomes scale * rough_normal(...) of index r *
/// count + i, rounded once. With `constant` every element becomes scale.
struct RandomRows {
  std::byte* data = nullptr;
  std::int64_t rows = 0, row_stride_bytes = 0, offset_bytes = 0;  ///< offset: of the first element in a row
  std::int64_t count = 0;                                         ///< elements a row
  DType dtype = DType::kBF16;                                     ///< bf16, f16, f32 or e4m3
  float scale = 1.0F;
  bool constant = false;
  std::uint64_t seed = 1, stream = 0;
};

/// A number with mean 0 and variance 1 in [-3.46, 3.46], nearly normal: the sum of four random bytes. Exact
/// in f32 but for its one product, so host and device agree; 30 times cheaper than a true normal one. The
/// four words of a Philox block serve four neighbouring indices.
[[nodiscard]] constexpr float rough_normal(std::uint32_t word) noexcept {
  const std::uint32_t sum = (word & 255U) + (word >> 8 & 255U) + (word >> 16 & 255U) + (word >> 24);
  constexpr float kPerDeviation = 0.0067658F;  // 1 / sqrt(4 (256^2 - 1) / 12)
  return static_cast<float>(static_cast<std::int32_t>(sum) - 510) * kPerDeviation;
}
/// The word of `index`.
[[nodiscard]] constexpr std::uint32_t random_word(std::uint64_t seed, std::uint64_t stream,
                                                  std::uint64_t index) noexcept {
  const std::uint64_t block = index / 4;
  return philox_4x32_10(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)})[index % 4];
}

}  // namespace mla
