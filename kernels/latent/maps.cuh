// SPDX-License-Identifier: Apache-2.0
// Descriptions of tensors for the copy engine, made on the host for every call.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "common/check.hpp"
#include "mla/dtype.hpp"
#include "mla/error.hpp"

namespace mla::MLA_ARCH_NS::latent {

/// cuTensorMapEncodeTiled, through the runtime: the driver is not linked.
inline auto encode_tiled() {
  static const auto kFunction = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    MLA_CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                    cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) {
      throw Error(ErrorCode::kDevice,
                  "cuda-latent: the driver has no cuTensorMapEncodeTiled (CUDA 12.0 and later have)");
    }
    return reinterpret_cast<CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                         const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                         const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                         CUtensorMapL2promotion, CUtensorMapFloatOOBfill)>(function);
  }();
  return kFunction;
}

/// A tensor of 16-bit elements in boxes with the 128-byte swizzle. Without promotion in the L2: 256 bytes
/// cost 7 % of the bandwidth.
template <std::size_t kRank>
CUtensorMap encode(DType dtype, const std::byte* data, const std::array<cuuint64_t, kRank>& extents,
                   const std::array<cuuint64_t, kRank - 1>& strides,
                   const std::array<cuuint32_t, kRank>& box) {
  CUtensorMap map;
  std::array<cuuint32_t, kRank> steps;
  steps.fill(1);
  const CUresult result = encode_tiled()(
      &map, dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kRank,
      const_cast<std::byte*>(data), extents.data(), strides.data(), box.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::kUnsupported,
                "cuda-latent: the driver refuses the cache's strides or extents for tensor copies (error " +
                    std::to_string(static_cast<int>(result)) + ")");
  }
  return map;
}

}  // namespace mla::MLA_ARCH_NS::latent
