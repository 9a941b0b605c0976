// SPDX-License-Identifier: Apache-2.0
#include "mla/device_bench.hpp"

namespace mla {

CapturedWork::~CapturedWork() = default;
DeviceTimer::~DeviceTimer() = default;

}  // namespace mla
