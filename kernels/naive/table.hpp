// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/params.hpp"

namespace mla::kernels {

/// Entry points of cuda-naive for one architecture.
struct NaiveTable {
  /// Enqueues the attention on `stream` (a cudaStream_t) of the current device.
  void (*run)(const AttentionParams& params, void* stream);
};

/// Keys a block takes at a time.
inline constexpr int kNaiveTile = 32;

/// Dynamic shared memory of a block: query and accumulator; a tile's rows, weights and width.
[[nodiscard]] constexpr std::size_t naive_shared_bytes(int latent, int rope) noexcept {
  return (static_cast<std::size_t>(latent) * 2 + static_cast<std::size_t>(rope)) * sizeof(float) +
         kNaiveTile * (2 * sizeof(void*) + sizeof(float)) + sizeof(int);
}

}  // namespace mla::kernels
