// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "mla/device.hpp"
#include "mla/export.h"

namespace mla {

/// Where a backend's tensors live: allocation and copies, without the runtime's headers. What the verifier
/// and the benchmark put their arguments through, so that neither knows a CUDA call.
class MLA_EXPORT DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory();
  /// At least 256-byte aligned; contents may be anything. 0 bytes give a pointer that may be released, too.
  /// Throws kDevice naming the size if there is not so much.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* pointer) noexcept = 0;
  /// Copies are complete when they return.
  virtual void to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void to_host(void* host, const void* device, std::size_t bytes) = 0;
  /// Waits for everything enqueued so far. Throws kDevice with the runtime's sentence if any of it failed.
  virtual void synchronize() = 0;
};

/// This process's own memory.
[[nodiscard]] MLA_EXPORT DeviceMemory& host_memory();

/// Memory of a real device (device.origin kReal). Throws kDevice in a build without a runtime for it.
[[nodiscard]] MLA_EXPORT DeviceMemory& device_memory(const Device& device);

}  // namespace mla
