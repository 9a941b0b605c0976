// SPDX-License-Identifier: Apache-2.0
// cuda-latent, large work: absorbed MLA decode where the tensor cores or the memory are the limit, not
// latency.
//
//   out[t, h, :] = softmax_j(scale * q[t, h, :] . row_j) row_j[0:512]       row_j = [c_kv 512 | k_pe 64]
//
// A CTA has 64 rows (queries x heads) and walks over its range of blocks of 64 keys. A block is loaded once:
// for the scores it is K, for the output its latent part is V, read from the same bytes.
//
//           576 channels       64 keys                           512 channels
//          +-------------+    +--------+                      +--------+--------+
//  64 rows |      Q      |  x |  K^T   | = S -> P        x    | V 0..  | 256..  | 64 keys  = O (registers)
//          +-------------+    +--------+   64 x 64 (shared)   +--------+--------+
//
//   warpgroup 0   loads    one warp: keys by tensor copies, block after block, across borders of requests
//                          three warps: the query rows of the next segment by cp.async (the first one's
//                          are fetched by the warpgroups of the values)
//   warpgroup 1   scores   S = Q K^T (m64n64k16), masks, maximum, weights into the dead rotary part
//   warpgroup 2   values   O[:, 0:256] += P V (m64n128k16), rescaling, output
//   warpgroup 3   values   O[:, 256:512]
//
// With more than 64 rows a cluster of two CTAs has 128: each loads every second box of 16 keys for both
// (multicast), so a block crosses the L2 once. Two slots of 64 keys and the query fill the shared memory.
//
// Bytes: every cache row once per 128 rows (64 if there are no more), q and out once, partial results of cut
// requests. Bound: memory up to 64 rows, else the tensor cores: 2176 cycles a block. What is reached, and
// what was tried instead: docs/kernels/cuda-latent-large.md.
#pragma once

#include "common/check.hpp"
#include "latent/large_finish.cuh"
#include "latent/large_load.cuh"
#include "latent/large_maps.cuh"
#include "ptx/global.cuh"

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
      ptx::mbarrier_init(ptx::smem(&control.empty[i][0]), 8 * Config::kTiles);
      ptx::mbarrier_init(ptx::smem(&control.empty[i][1]), 8 * Config::kTiles);
      ptx::mbarrier_init(ptx::smem(&control.weights_full[i][0]), 4);
      ptx::mbarrier_init(ptx::smem(&control.weights_full[i][1]), 4);
    }
    ptx::mbarrier_init(ptx::smem(&control.first_query_full), kValuesWarps);
    ptx::mbarrier_init(ptx::smem(&control.query_full), 3);
    ptx::mbarrier_init(ptx::smem(&control.query_empty), 4);
    ptx::mbarrier_init_fence();
    ptx::prefetch_map(&maps.latent);
    ptx::prefetch_map(&maps.rope);
    control.work.range = Range{};
  }
  if (threadIdx.x / 32 == 1) prefetch_first(p, static_cast<std::int32_t>(blockIdx.x) / Config::kTiles);
  if constexpr (Config::kTiles > 1) {
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // the fence above has made the barriers known
  }
  ptx::let_next_launch_start();
  ptx::wait_for_previous_launch();
  find_range(p, static_cast<std::int32_t>(blockIdx.x) / Config::kTiles, Config::kRows, control.work);
  if constexpr (Config::kTiles > 1) ptx::cluster_wait();
  const bool work = control.work.range.begin < control.work.range.end;
  const std::uint32_t shared = ptx::smem(dynamic);
  if (role == 0) {
    ptx::fewer_registers<64>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp == 0) {
      KeyLoader<Config>{p, maps, control, shared, rank}.run();
    } else {
      load_queries<Config>(p, control, shared, rank, warp - 1, 3);
    }
    clear_tail(p);
  } else if (role == 1) {
    if (work) Scores<Config>{p, control, shared, rank}.run();
  } else {
    ptx::more_registers<160>();
    if (work) {
      load_first_query<Config>(p, control, shared, rank, static_cast<int>(threadIdx.x) / 32 - 8);
      Values<Config> values{p, control, shared, rank, role - 2};
      values.run([&](const Segment& s) { finish_segment(values, s); });
    }
  }
  if constexpr (Config::kTiles > 1) {
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // the other CTA may still load and arrive here
    ptx::cluster_wait();
  }
}

/// Starts the kernel for a call of the frame.
template <class Config>
void run_large(const kernels::latent::Params& params, void* stream) {
  Call call{params};
  call.ranges = params.clusters * params.row_groups;
  // A pair of CTAs shares the loads of every 32 keys.
  call.box = Config::kTiles == 1 && params.attention.cache.block_size % 32 == 0 ? 32 : 16;
  const Maps maps = make_maps(call);

  constexpr auto kernel = latent_large<Config>;
  MLA_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kSharedBytes)));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = Config::kTiles;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(call.ranges * Config::kTiles));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = 2;
  if (const cudaError_t status = cudaLaunchKernelEx(&config, kernel, call, maps); status != cudaSuccess) {
    kernels::throw_launch_error(status, "latent_large", config.gridDim, config.blockDim, kSharedBytes);
  }
}

template <class Config>
constexpr kernels::latent::Variant large_variant(DType dtype) {
  return {.family = kernels::latent::Family::kLarge,
          .rows = Config::kRows,
          .latent = kLatent,
          .dtype = dtype,
          .run = &run_large<Config>};
}

}  // namespace mla::MLA_ARCH_NS::latent::large
