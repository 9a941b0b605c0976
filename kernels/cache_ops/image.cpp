// SPDX-License-Identifier: Apache-2.0
#include "cache_ops/table.hpp"
#include "cache_ops_images.inc"
#include "common/current_device.hpp"

namespace mla::kernels::cache_ops {

const Table& table() {
  return current_image<Table>(kImages);
}

}  // namespace mla::kernels::cache_ops
