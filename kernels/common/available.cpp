// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cache_ops/table.hpp"
#include "common/current_device.hpp"
#include "mla/device_ops.hpp"

namespace mla::device_ops {

Support available() {
  const RealDevices found = real_devices();
  if (found.devices.empty()) return Support::no(found.why_none);
  try {
    (void)kernels::cache_ops::table();
  } catch (const Error& error) {
    return Support::no(error.what());
  }
  return Support::yes();
}

}  // namespace mla::device_ops
