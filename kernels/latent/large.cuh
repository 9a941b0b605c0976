// SPDX-License-Identifier: Apache-2.0
// cuda-latent, large work (draft header)
#pragma once

#include "common/check.hpp"
#include "latent/large_finish.cuh"
#include "latent/large_load.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

/// Tokens that belong to no request (padding behind the last one) are empty rows. One warpgroup.
__device__ __forceinline__ void clear_tail(const Call& p) {
  const kernels::AttentionParams& a = p.attention;
  const std::int64_t first = a.cu_seqlens_q[a.num_requests * a.cu_seqlens_stride];
  const std::int64_t rows = (a.num_tokens - first) * a.num_heads;
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const std::int64_t token = first + r / a.num_heads;
    const std::int64_t head = r % a.num_heads;
    const std::int64_t at = token * a.out.stride_token + head * a.out.stride_head;
    for (int c = static_cast<int>(threadIdx.x) % 128; c < a.latent; c += 128) {
      store_from_float(a.out.data, a.out.dtype, at + c, 0.0F);
    }
    if (a.lse != nullptr && threadIdx.x % 128 == 0) {
      a.lse[token * a.lse_stride_token + head * a.lse_stride_head] = -INFINITY;
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(kThreads, 1)
    latent_large(const __grid_constant__ Call p, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) std::byte dynamic[];
  auto& control = *reinterpret_cast<Control*>(dynamic + kControlAt);
  const int role = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128, 0);
  const int rank = Config::kTiles > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(ptx::smem(&control.full[i]), 1);
      ptx::mbarrier_init(ptx::smem(&control.empty[i]), 8 * Config::kTiles);
      ptx::mbarrier_init(ptx::smem(&control.weights_full[i][0]), 4);
      ptx::mbarrier_init(ptx::smem(&control.weights_full[i][1]), 4);
    }
    ptx::mbarrier_init(ptx::smem(&control.query_full), 3);
    ptx::mbarrier_init(ptx::smem(&control.query_empty), 4);
    ptx::mbarrier_init_fence();
    ptx::prefetch_map(&maps.latent);
    ptx::prefetch_map(&maps.rope);
  }
  find_range(p, static_cast<std::int32_t>(blockIdx.x) / Config::kTiles, Config::kRows, control.range);
  if constexpr (Config::kTiles > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  const bool work = control.range.range.begin < control.range.range.end;
  const std::uint32_t shared = ptx::smem(dynamic);
  if (role == 0) {
    ptx::fewer_registers<40>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp == 0) {
      KeyLoader<Config>{p, maps, control, shared, rank}.run();
    } else {
      load_queries<Config>(p, control, shared, rank, warp - 1, 3);
    }
    clear_tail(p);
  } else if (role == 1) {
    ptx::more_registers<136>();
    if (work) Scores<Config>{p, control, shared, rank}.run();
  } else {
    ptx::more_registers<168>();
    if (work) {
      Values<Config> values{p, control, shared, rank, role - 2};
      values.run([&](const Segment& s) { finish_segment(values, s); });
    }
  }
  if constexpr (Config::kTiles > 1) {
    __syncwarp();
    ptx::cluster_arrive();  // the other CTA may still load and arrive here
    ptx::cluster_wait();
  }
}

/// cuTensorMapEncodeTiled for 16-bit elements, through the runtime: the driver is not linked. Throws kUnsupported with
/// `what` if the driver refuses.
CUtensorMap encode(DType dtype, const void* data, int rank, const cuuint64_t* extents, const cuuint64_t* strides,
                   const cuuint32_t* box, CUtensorMapSwizzle swizzle);
Maps make_maps(const Call& p);

template <class Config>
void launch_call(const Call& p, const Maps& maps, void* stream) {
  constexpr auto kernel = latent_large<Config>;
  MLA_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kSharedBytes)));
  const dim3 grid(static_cast<unsigned>(p.ranges * Config::kTiles));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = Config::kTiles;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &cluster;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, p, maps));
  MLA_CHECK_LAUNCH("latent_large", grid, kThreads, kSharedBytes);
}

}  // namespace mla::MLA_ARCH_NS::latent::large
