// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// How many blocks a launch has. Host code that nvcc compiles for every architecture: no heavy headers.
namespace mla::kernels {

/// Blocks for `work` items, `per_block` each; at most `most`, whose threads then stride.
[[nodiscard]] constexpr unsigned blocks_for(std::int64_t work, std::int64_t per_block,
                                            unsigned most = 0xffffffffU) {
  const std::int64_t blocks = (work + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

/// Blocks of a grid whose blocks take their work in turn: `wanted`, or as many of `kernel` as the current
/// device runs side by side, if that is less. Asks the driver for nothing that a stream capture forbids.
[[nodiscard]] unsigned one_wave(const void* kernel, int threads, unsigned wanted);

}  // namespace mla::kernels
