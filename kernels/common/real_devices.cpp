// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/check.hpp"
#include "mla/device.hpp"

namespace mla {
namespace {

int attribute(cudaDeviceAttr what, int ordinal) {
  int value = 0;
  MLA_CHECK_CUDA(cudaDeviceGetAttribute(&value, what, ordinal));
  return value;
}

std::string architecture_of(int compute_capability) {
  switch (compute_capability / 10) {
    case 7:
      return compute_capability == 75 ? "turing" : "volta";
    case 8:
      return compute_capability == 89 ? "ada" : "ampere";
    case 9:
      return "hopper";
    case 10:
    case 11:
    case 12:
      return "blackwell";
    default:
      return "sm_" + std::to_string(compute_capability);
  }
}

Device describe(int ordinal) {
  cudaDeviceProp properties{};
  MLA_CHECK_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  Device device;
  device.name = properties.name;
  device.title = properties.name;
  device.vendor = "nvidia";
  device.origin = DeviceOrigin::kReal;
  device.ordinal = ordinal;
  device.compute_capability = properties.major * 10 + properties.minor;
  device.architecture = architecture_of(device.compute_capability);
  device.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  // Two transfers a clock; the runtime gives kHz and bits.
  device.memory_bandwidth = 2.0 * 1e3 * attribute(cudaDevAttrMemoryClockRate, ordinal) *
                            attribute(cudaDevAttrGlobalMemoryBusWidth, ordinal) / 8;
  device.l2_bytes = properties.l2CacheSize;
  device.num_sms = properties.multiProcessorCount;
  device.shared_memory_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  int driver = 0;
  MLA_CHECK_CUDA(cudaDriverGetVersion(&driver));
  device.source = fmt::format("the CUDA driver ({}.{})", driver / 1000, driver % 1000 / 10);
  return device;
}

}  // namespace

RealDevices real_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    if (status == cudaErrorInsufficientDriver) {
      int driver = 0;
      cudaDriverGetVersion(&driver);
      if (driver == 0) return {{}, "no NVIDIA driver was found on this machine"};
      return {{},
              fmt::format("the NVIDIA driver supports CUDA {}.{}; this build needs {}.{}", driver / 1000,
                          driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10)};
    }
    return {{}, fmt::format("the CUDA runtime says: {}", cudaGetErrorString(status))};
  }
  if (count == 0) return {{}, "the NVIDIA driver sees no GPU"};
  RealDevices found;
  for (int ordinal = 0; ordinal < count; ++ordinal) found.devices.push_back(describe(ordinal));
  return found;
}

}  // namespace mla
