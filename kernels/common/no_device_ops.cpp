// SPDX-License-Identifier: Apache-2.0
// What the device operations answer in a build without a CUDA toolkit: arguments are checked first, as
// elsewhere.
#include "cache_ops/table.hpp"
#include "index/table.hpp"
#include "mla/device_ops.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

[[noreturn]] void refuse_all() {
  throw Error(ErrorCode::kUnsupported, "a device operation: " + device_ops::available().why);
}

}  // namespace

Support device_ops::available() {
  return Support::no(real_devices().why_none);
}

void device_ops::merge_partials(ConstTensorRef, View<const float, 2>, TensorRef, View<float, 1>, Stream) {
  refuse_all();
}

namespace kernels {

const cache_ops::Table& cache_ops::table() {
  refuse_all();
}
const index::Table& index::table() {
  refuse_all();
}

}  // namespace kernels
}  // namespace mla
