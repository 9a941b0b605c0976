// SPDX-License-Identifier: Apache-2.0
#include "mla/memory.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <new>

#include "core/device_memory.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

constexpr std::align_val_t kAlignment{256};

class HostMemory final : public DeviceMemory {
 public:
  void* allocate(std::size_t bytes) override { return ::operator new(bytes, kAlignment); }
  void release(void* pointer) noexcept override { ::operator delete(pointer, kAlignment); }
  void to_device(void* device, const void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void to_host(void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void synchronize() override {}

 private:
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
};

std::atomic<detail::MemoryProvider> memory_provider{nullptr};

}  // namespace

DeviceMemory::~DeviceMemory() = default;

DeviceMemory& host_memory() {
  static HostMemory memory;
  return memory;
}

DeviceMemory& device_memory(const Device& device) {
  if (device.origin == DeviceOrigin::kReal) {
    const detail::MemoryProvider provider = memory_provider.load();
    DeviceMemory* memory = provider == nullptr ? nullptr : provider(device);
    if (memory != nullptr) return *memory;
  }
  throw Error(ErrorCode::kDevice,
              fmt::format("this build has no runtime that could hold tensors on '{}'", device.name));
}

void detail::set_memory_provider(MemoryProvider provider) noexcept {
  memory_provider.store(provider);
}

}  // namespace mla
