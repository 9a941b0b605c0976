// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "mla/random_rows.hpp"

namespace mla::kernels::probe {

/// Work of one call of the arithmetic loops, in FLOPs a thread block of kThreads.
inline constexpr int kThreads = 256;
inline constexpr int kLoopRounds = 4096;
inline constexpr int kChains = 8;  ///< independent accumulators of a thread (f32) or warp (matrix)

/// Entry points for one architecture; `stream` is a cudaStream_t. Sizes are multiples of 16 bytes.
struct Table {
  void (*fill)(const RandomRows& rows, void* stream);
  /// Reads `bytes`; `sink` (4 bytes) is written only if the data have one of 2^32 sums.
  void (*read)(const void* data, std::size_t bytes, int blocks, std::uint32_t* sink, void* stream);
  void (*copy)(void* to, const void* from, std::size_t bytes, int blocks, void* stream);
  void (*multiply_add)(int blocks, float* sink,
                       void* stream);  ///< 2 kLoopRounds kChains kThreads FLOPs a block
  void (*matrix)(int blocks, float* sink,
                 void* stream);  ///< 2 * 16 * 8 * 16 kLoopRounds kChains kThreads / 32
  void (*nothing)(void* stream);
  /// Keeps the stream waiting until `*word` (host memory that the device reads) is `ticket`, at most for `cycles` of the
  /// multiprocessor's clock.
  void (*hold)(const volatile std::uint32_t* word, std::uint32_t ticket, std::int64_t cycles, void* stream);
};

/// Of the current device.
[[nodiscard]] const Table& table();

}  // namespace mla::kernels::probe
