// SPDX-License-Identifier: Apache-2.0
#include "common/grid.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "common/check.hpp"

namespace mla::kernels {

unsigned one_wave(const void* kernel, int threads, unsigned wanted) {
  int device = 0, multiprocessors = 0, blocks = 0;
  MLA_CHECK_CUDA(cudaGetDevice(&device));
  MLA_CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  if (wanted <= static_cast<unsigned>(multiprocessors)) return wanted;
  MLA_CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0));
  return std::min(wanted, static_cast<unsigned>(std::max(blocks, 1) * multiprocessors));
}

}  // namespace mla::kernels
