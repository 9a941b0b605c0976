// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: descriptions of the cache for the copy engine, made on the host for every call.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "common/check.hpp"
#include "latent/large_load.cuh"
#include "mla/error.hpp"

namespace mla::MLA_ARCH_NS::latent::large {

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

inline Maps make_maps(const Call& p) {
  const kernels::CacheParams& c = p.attention.cache;
  const DType dtype = p.attention.q.dtype;  // the cache's
  const auto keys = static_cast<cuuint64_t>(c.block_size);
  const auto blocks = static_cast<cuuint64_t>(std::max<std::int64_t>(1, c.num_blocks));
  const auto box = static_cast<cuuint32_t>(p.box);
  const auto row = static_cast<cuuint64_t>(c.latent_row_stride);
  return {.latent = encode<5>(dtype, c.latent, {64, 8, kLatent / 64, keys / 8, blocks},
                              {row, 128, 8 * row, static_cast<cuuint64_t>(c.latent_block_stride)},
                              {64, 8, kLatent / 64, box / 8, 1}),
          .rope = encode<3>(
              dtype, c.rope, {kRope, keys, blocks},
              {static_cast<cuuint64_t>(c.rope_row_stride), static_cast<cuuint64_t>(c.rope_block_stride)},
              {kRope, box, 1})};
}

}  // namespace mla::MLA_ARCH_NS::latent::large
