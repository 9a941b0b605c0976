// SPDX-License-Identifier: Apache-2.0
#include "common/check.hpp"

#include <fmt/format.h>

#include "mla/error.hpp"

namespace mla::kernels {
namespace {

std::string describe(cudaError_t status) {
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace

void throw_cuda_error(cudaError_t status, const char* call) {
  cudaGetLastError();  // an error that is not sticky must not be met again by the next check
  throw Error(ErrorCode::kDevice, fmt::format("CUDA: {} in {}", describe(status), call));
}

void throw_launch_error(cudaError_t status, const char* kernel, dim3 grid, dim3 block,
                        std::size_t shared_bytes) {
  throw Error(
      ErrorCode::kDevice,
      fmt::format("CUDA: {} at the launch of {} (grid {}x{}x{}, block {}x{}x{}, {} bytes of shared memory)",
                  describe(status), kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes));
}

DeviceGuard::DeviceGuard(int ordinal) {
  int current = 0;
  MLA_CHECK_CUDA(cudaGetDevice(&current));
  if (current == ordinal) return;
  MLA_CHECK_CUDA(cudaSetDevice(ordinal));
  previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

}  // namespace mla::kernels
