// SPDX-License-Identifier: Apache-2.0
// The CUDA side of mla::DeviceMemory.
#include "mla/memory.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "common/check.hpp"
#include "core/device_memory.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::kernels {
namespace {

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int ordinal) : ordinal_(ordinal) {}

  void* allocate(std::size_t bytes) override {
    const DeviceGuard guard(ordinal_);
    void* pointer = nullptr;
    const cudaError_t status = cudaMalloc(&pointer, bytes == 0 ? 1 : bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      std::size_t free_bytes = 0;
      std::size_t total_bytes = 0;
      MLA_CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
      throw Error(ErrorCode::kDevice,
                  fmt::format("GPU {} has no {} bytes to allocate; {} of {} are free", ordinal_,
                              text::with_thousands(static_cast<std::int64_t>(bytes)),
                              text::with_thousands(static_cast<std::int64_t>(free_bytes)),
                              text::with_thousands(static_cast<std::int64_t>(total_bytes))));
    }
    MLA_CHECK_CUDA(status);
    return pointer;
  }

  void release(void* pointer) noexcept override { cudaFree(pointer); }

  void to_device(void* device, const void* host, std::size_t bytes) override {
    if (bytes == 0) return;
    const DeviceGuard guard(ordinal_);
    MLA_CHECK_CUDA(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    synchronize();  // a copy from pageable memory may return before its last part has landed
  }

  void to_host(void* host, const void* device, std::size_t bytes) override {
    if (bytes == 0) return;
    const DeviceGuard guard(ordinal_);
    MLA_CHECK_CUDA(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
  }

  void synchronize() override {
    const DeviceGuard guard(ordinal_);
    MLA_CHECK_CUDA(cudaDeviceSynchronize());
  }

 private:
  int ordinal_;
};

DeviceMemory* cuda_memory(const Device& device) {
  if (device.vendor != "nvidia" || device.ordinal < 0) return nullptr;
  static std::mutex mutex;
  // Never destroyed: the runtime may be gone by the time static objects are.
  static auto* const memories = new std::map<int, std::unique_ptr<CudaMemory>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaMemory>& memory = (*memories)[device.ordinal];
  if (!memory) memory = std::make_unique<CudaMemory>(device.ordinal);
  return memory.get();
}

[[maybe_unused]] const bool registered = [] {
  mla::detail::set_memory_provider(&cuda_memory);
  return true;
}();

}  // namespace
}  // namespace mla::kernels
