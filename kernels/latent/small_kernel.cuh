// SPDX-License-Identifier: Apache-2.0
// cuda-latent, small work: absorbed MLA decode of few rows in one launch, made for latency.
//
//   out[t, h, :] = softmax_j(scale * q[t, h, :] . row_j) row_j[0:L]        row_j = [c_kv L | k_pe R]
//
// A CTA takes 16 or 32 rows (queries x heads) and a share of a request's keys; the grid is CTAs x row groups.
//
//   keys   |---0---|---1---| .. |---7---|---0---|     units of 32 entries, dealt to the CTAs of a request in turn
//   unit   32 rows of the cache = one slot of the ring (L + 64 channels, octets of entries, boxes of 64 channels)
//   pass   some units:  scores -> softmax -> weights -> output        16 rows: small_narrow.cuh, 32: small_wide.cuh
//   end    CTAs that share a request meet in the workspace; when all are there, each adds up a slice of the
//          result (small_arrive.cuh, small_merge.cuh)
//
//   warps 0-7    mathematics (small_math.cuh) and merge
//   warps 8-11   loads (small_load.cuh): a unit by one copy of the copy engine, or row by row, any page size
//
// Bytes: every cache row once per row group, q and out once. Bound: at small sizes the chain of launch, page
// table, first row, softmax, merge; then 50 B/ns of one SM or the memory's bandwidth.
// docs/kernels/cuda-latent.md has the model and the measurements.
#pragma once

#include <algorithm>

#include "common/check.hpp"
#include "latent/maps.cuh"
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
__device__ __forceinline__ void initialise(const Shared<Config>& shared, bool pairs) {
  for (std::uint32_t i = 0; i < Config::kSlots; ++i) {
    ptx::mbarrier_init(shared.full(i), kLoadThreads);
    ptx::mbarrier_init(shared.empty(i), pairs ? 2 * kMathWarps : kMathThreads);
  }
  ptx::mbarrier_init(shared.posted_full(), 1);
  ptx::mbarrier_init(shared.posted_empty(), kMathThreads);
  if constexpr (Config::kWide) {
    for (std::uint32_t i = 0; i < 2; ++i) ptx::mbarrier_init(shared.queries_full(i), kLoadThreads);
  }
  ptx::mbarrier_init_fence();
}

template <class Config>
__global__ void __launch_bounds__(kMathThreads + kLoadThreads, 1)
    latent_small(const __grid_constant__ Params p, const __grid_constant__ CUtensorMap units) {
  extern __shared__ __align__(1024) std::byte dynamic[];
  const Shared<Config> shared{dynamic};
  const bool loads = threadIdx.x >= kMathThreads;
  const bool pairs = Config::kWide && p.by_pairs;
  if (threadIdx.x == 0) initialise(shared, pairs);
  if (pairs) ptx::cluster_arrive_relaxed();  // the fence above has made the barriers known
  ptx::let_next_launch_start();
  Loader<Config> loader(p, units, shared);
  if (loads) loader.prepare(p);
  ptx::wait_for_previous_launch();
  if (loads) loader.begin(p, shared);
  __syncthreads();
  if (pairs) ptx::cluster_wait();

  if (loads) {
    loader.run(p, shared);
    clear_tail(p);
  } else {
    // The first piece's queries, by warps that are idle now, where its request is known.
    if (p.per_request > 0 && threadIdx.x < kLoadThreads) {
      load_queries(p, shared, shared.lengths(), 0, threadIdx.x);
    }
    Math<Config> math(p);
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
  if (pairs) {  // the other CTA may still load and arrive here
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
  // Nothing that this thread asked for may arrive when the shared memory is another's.
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}

/// Units of a cache whose rows are whole, as they lie in a slot: channels, rows of an octet, boxes, octets of a
/// block, blocks.
template <class Config>
CUtensorMap unit_map(const Params& p) {
  const kernels::CacheParams& c = p.attention.cache;
  const auto row = static_cast<cuuint64_t>(c.latent_row_stride);
  return encode<5>(p.attention.q.dtype, c.latent,
                   {64, kOctet, Config::kBoxes, static_cast<cuuint64_t>(c.block_size / kOctet),
                    static_cast<cuuint64_t>(std::max<std::int64_t>(1, c.num_blocks))},
                   {row, 128, kOctet * row, static_cast<cuuint64_t>(c.latent_block_stride)},
                   {64, kOctet, Config::kBoxes, kUnit / kOctet, 1});
}

template <class Config>
void launch_small(const Params& p, void* stream) {
  const dim3 grid(static_cast<unsigned>(p.clusters), static_cast<unsigned>(p.row_groups));
  constexpr unsigned kThreads = kMathThreads + kLoadThreads;
  MLA_CHECK_CUDA(cudaFuncSetAttribute(latent_small<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      Config::kBytes));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = attributes[1].val.clusterDim.z = 1;
  attributes[1].val.clusterDim.y = 2;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = Config::kBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = Config::kWide && p.by_pairs ? 2 : 1;
  const CUtensorMap units = p.by_units ? unit_map<Config>(p) : CUtensorMap{};
  if (const cudaError_t status = cudaLaunchKernelEx(&config, latent_small<Config>, p, units);
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
