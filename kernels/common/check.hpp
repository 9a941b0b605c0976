// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace mla::kernels {

/// Throws mla::Error(kDevice) with the runtime's own sentence and the call that failed.
[[noreturn]] void throw_cuda_error(cudaError_t status, const char* call);
/// The same for a launch, naming kernel, grid, block and dynamic shared memory.
[[noreturn]] void throw_launch_error(cudaError_t status, const char* kernel, dim3 grid, dim3 block,
                                     std::size_t shared_bytes);

/// Makes `ordinal` the current device for the scope and restores the caller's.
class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

 private:
  int previous_ = -1;  // -1: it was the current one already
};

}  // namespace mla::kernels

// Macros because they quote the call.
#define MLA_CHECK_CUDA(call)                                                \
  do {                                                                      \
    if (const cudaError_t mla_status = (call); mla_status != cudaSuccess) { \
      ::mla::kernels::throw_cuda_error(mla_status, #call);                  \
    }                                                                       \
  } while (false)

/// After a launch: an error of the launch itself (never of its execution, which would need a wait).
#define MLA_CHECK_LAUNCH(kernel, grid, block, shared_bytes)                              \
  do {                                                                                   \
    if (const cudaError_t mla_status = cudaGetLastError(); mla_status != cudaSuccess) {  \
      ::mla::kernels::throw_launch_error(mla_status, kernel, grid, block, shared_bytes); \
    }                                                                                    \
  } while (false)
