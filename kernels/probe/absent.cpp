// SPDX-License-Identifier: Apache-2.0
// What a build without a CUDA toolkit answers to those who would measure on a GPU.
#include "mla/device_bench.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::kDevice, "nothing can be measured on a GPU: " + real_devices().why_none);
}

}  // namespace

std::unique_ptr<DeviceTimer> make_device_timer(const Device&) {
  refuse();
}
void fill_rows(const RandomRows&, Stream) {
  refuse();
}
void fill_bytes(std::byte*, std::size_t, std::byte, Stream) {
  refuse();
}
DeviceCeilings measure_ceilings(const Device&) {
  refuse();
}

}  // namespace mla
