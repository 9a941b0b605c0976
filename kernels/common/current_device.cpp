// SPDX-License-Identifier: Apache-2.0
#include "common/current_device.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/check.hpp"

namespace mla::kernels {

Device current_device() {
  Device device;
  int major = 0, minor = 0;
  MLA_CHECK_CUDA(cudaGetDevice(&device.ordinal));
  MLA_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.ordinal));
  MLA_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.ordinal));
  device.name = fmt::format("GPU {}", device.ordinal);
  device.vendor = "nvidia";
  device.origin = DeviceOrigin::kReal;
  device.compute_capability = major * 10 + minor;
  return device;
}

}  // namespace mla::kernels
