// SPDX-License-Identifier: Apache-2.0
#include "common/current_device.hpp"
#include "index/table.hpp"
#include "index_images.inc"

namespace mla::kernels::index {

const Table& table() {
  return current_image<Table>(kImages);
}

}  // namespace mla::kernels::index
