// SPDX-License-Identifier: Apache-2.0
// cuda-latent, small work: absorbed MLA decode of few rows in one launch, made for latency.
//
//   out[t, h, :] = softmax_j(scale * q[t, h, :] . row_j) row_j[0:L]        row_j = [c_kv L | k_pe R]
//
// A CTA takes 16 or 32 rows (queries x heads) and a share of a request's keys; the grid is CTAs x row groups.
//
//   keys   |-0-|-1-|-2-| .. |-7-|-0-|-1-|     groups of eight entries, dealt to the CTAs of a request in turn
//   unit   four groups = 32 rows of the cache = one slot of the ring (L + 64 channels, boxes of 64)
//   pass   up to three units:  S = Q K^T -> shared memory -> softmax -> P -> O += P V       (mma m16n8k16)
//   end    CTAs that share a request meet in the workspace; when all are there, each adds up a slice of the
//          result (arrival.cuh, small_merge.cuh)
//
//   warps 0-7    mathematics (small_math.cuh) and merge
//   warps 8-11   loads (small_load.cuh): eight entries a warp and unit by cp.async, any page size
//
// Bytes: every cache row once per row group, q and out once. Bound: at small sizes the chain of launch, page
// table, first row, softmax, merge; then 50 B/ns of one SM or the memory's bandwidth.
// docs/kernels/cuda-latent.md has the model and the measurements.
#pragma once

#include "common/check.hpp"
#include "latent/small_load.cuh"
#include "latent/small_merge.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// Tokens that belong to no request (padding behind the last one) are empty rows.
__device__ __forceinline__ void clear_tail(const Params& p) {
  const kernels::AttentionParams& a = p.attention;
  const int thread = static_cast<int>(threadIdx.x) - kMathThreads;
  const std::int64_t first = a.cu_seqlens_q[a.num_requests * a.cu_seqlens_stride];
  const std::int64_t rows = (a.num_tokens - first) * a.num_heads;
  const std::int64_t block = blockIdx.y * gridDim.x + blockIdx.x;
  for (std::int64_t r = block; r < rows; r += gridDim.x * gridDim.y) {
    const std::int64_t token = first + r / a.num_heads;
    const std::int64_t head = r % a.num_heads;
    for (int c = thread * 2; c < a.latent; c += kLoadThreads * 2) {
      store_pair(a.out.data, a.out.dtype, token * a.out.stride_token + head * a.out.stride_head + c,
                 float2{});
    }
    if (a.lse != nullptr && thread == 0) {
      a.lse[token * a.lse_stride_token + head * a.lse_stride_head] = -INFINITY;
    }
  }
}

template <class Config>
__device__ __forceinline__ void initialise(const Shared<Config>& shared) {
  for (std::uint32_t i = 0; i < Config::kSlots; ++i) {
    ptx::mbarrier_init(shared.full(i), kLoadThreads);
    ptx::mbarrier_init(shared.empty(i), kMathWarps);
  }
  ptx::mbarrier_init(shared.posted_full(), 1);
  ptx::mbarrier_init(shared.posted_empty(), kMathWarps);
  ptx::mbarrier_init_fence();
}

template <class Config>
__global__ void __launch_bounds__(kMathThreads + kLoadThreads, 1)
    latent_small(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) std::byte dynamic[];
  const Shared<Config> shared{dynamic};
  const bool loads = threadIdx.x >= kMathThreads;
  if (threadIdx.x == 0) initialise(shared);
  ptx::let_next_launch_start();
  Loader<Config> loader(p, shared);
  if (loads) loader.prepare(p);
  ptx::wait_for_previous_launch();
  if (loads) loader.begin(p, shared);
  __syncthreads();

  if (loads) {
    loader.run(p, shared);
    clear_tail(p);
  } else {
    // The first piece's queries, by warps that are idle now, where its request is known.
    if (p.per_request > 0 && threadIdx.x < kLoadThreads) {
      load_queries(p, shared, shared.lengths(), 0, threadIdx.x);
    }
    Math<Config> math;
    Merge<Config> merge;
    bool more = true;
    for (std::uint32_t i = 0; more; ++i) {
      ptx::mbarrier_wait(shared.posted_full(), i & 1);
      const PostedPiece& posted = shared.posted(i);
      if (!posted.any) break;
      more = !posted.piece.last;
      math.run(p, shared, posted);
      merge.run(p, shared, math, posted);
    }
  }
  // Nothing that this thread asked for may arrive when the shared memory is another's.
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}

template <class Config>
void launch_small(const Params& p, void* stream) {
  const dim3 grid(static_cast<unsigned>(p.clusters), static_cast<unsigned>(p.row_groups));
  constexpr unsigned kThreads = kMathThreads + kLoadThreads;
  MLA_CHECK_CUDA(cudaFuncSetAttribute(latent_small<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      Config::kBytes));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = Config::kBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  if (const cudaError_t status = cudaLaunchKernelEx(&config, latent_small<Config>, p);
      status != cudaSuccess) {
    kernels::throw_launch_error(status, "latent_small", grid, config.blockDim, Config::kBytes);
  }
}

template <class Config>
constexpr kernels::latent::Variant small_variant(DType dtype) {
  return {.family = kernels::latent::Family::kSmall,
          .rows = Config::kRows,
          .latent = Config::kLatent,
          .dtype = dtype,
          .run = &launch_small<Config>};
}

}  // namespace mla::MLA_ARCH_NS::latent
