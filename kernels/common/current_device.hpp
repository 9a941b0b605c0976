// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/arch_table.hpp"
#include "mla/error.hpp"

namespace mla::kernels {

/// The current CUDA device of this thread, as far as choosing an image needs it. Throws kDevice if there is
/// none.
[[nodiscard]] Device current_device();

/// The image of `images` for the current device; throws kUnsupported with the reason of has_image().
template <class Table>
[[nodiscard]] const Table& current_image(std::span<const ArchImage<Table>> images) {
  const Device device = current_device();
  if (const Table* table = choose_image(images, device.compute_capability)) return *table;
  throw Error(ErrorCode::kUnsupported, "a device operation: " + has_image(images, device).why);
}

}  // namespace mla::kernels
