// SPDX-License-Identifier: Apache-2.0
// cuda-latent, shared prefixes: what stands around the two launches of the attention.
//
//   cut    the call as requests of two launches (slices), from the lengths and tables as they are at run time
//   1      what each request has behind its prefix, or all of it: the call's mask           f32 rows and their LSE
//   2      stretches of the prefixes: all queries of a group, stacked, no mask              f32 rows and their LSE
//   join   out = sum_i exp(lse_i - lse) part_i,   lse = log sum_i exp(lse_i)
//
//   keys   |------------- prefix ------------|--- own ---|     member 0
//          |            the same             |---- own ------|        1     an own part is one slice of launch 1,
//          |- stretch -|- stretch -|- stret. |-- own --|              2     a stretch is one slice of launch 2
//
// In this order, or the own keys would push the stretches' results, which are many, out of the L2 before they are joined.
//
// A member shares if every one of its queries sees the whole prefix and if its block table begins as the leader's
// does, which is the first member that is long enough. The others are computed by themselves in launch 1; their rows of
// launch 2 are not read.
//
// Bytes: the block tables twice, partial results once each way (stretches + 1 a row). Bound: latency.
// docs/kernels/cuda-latent-prefix.md has the model and the measurements.
#include <cmath>

#include "common/check.hpp"
#include "common/store.cuh"
#include "latent/sources.cuh"
#include "ptx/global.cuh"

namespace mla::MLA_ARCH_NS::latent {
namespace {

using kernels::latent::CascadeGroup;
using kernels::latent::CutParams;
using kernels::latent::JoinParams;
using kernels::latent::Slice;
using kernels::latent::Source;

constexpr int kCutThreads = 128;
constexpr int kJoinThreads = 128;  // at most: L / 4
constexpr unsigned kEveryLane = 0xffffffffU;

/// Whether all of so many queries of a request with so many keys see all of a prefix of `tokens`.
__device__ __forceinline__ bool long_enough(const kernels::AttentionParams& a, std::int32_t queries,
                                            std::int32_t keys, std::int32_t tokens) {
  return queries > 0 && keys - (a.causal ? queries - 1 : 0) >= tokens;
}

/// The first member that is long enough, or one past the last. All threads of the CTA.
__device__ __forceinline__ std::int32_t find_leader(const CutParams& p, const CascadeGroup& group) {
  __shared__ std::int32_t leader;
  if (threadIdx.x == 0) leader = group.first + group.count;
  __syncthreads();
  const kernels::AttentionParams& a = p.attention;
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < group.count; i += kCutThreads) {
    const std::int32_t request = group.first + i;
    const std::int32_t queries =
        a.cu_seqlens_q[(request + 1) * a.cu_seqlens_stride] - a.cu_seqlens_q[request * a.cu_seqlens_stride];
    if (!long_enough(a, queries, a.seq_lens[request * a.seq_lens_stride], group.tokens)) continue;
    atomicMin(&leader, request);
    break;
  }
  __syncthreads();
  return leader;
}

__device__ __forceinline__ const std::int32_t* table_row(const CutParams& p, std::int32_t request) {
  return p.attention.cache.block_table + request * p.attention.cache.table_stride_request;
}

/// Entries first .. first + count - 1 of a request's block table, as far as both have them.
__device__ __forceinline__ void copy_entries(const CutParams& p, std::int32_t request, std::int32_t first,
                                             std::int32_t count, std::int32_t* to, std::int32_t columns) {
  const std::int32_t end = min(count, min(columns, p.table_columns - first));
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < end; i += kCutThreads) {
    to[i] = table_row(p, request)[(first + i) * p.attention.cache.table_stride_column];
  }
}

__device__ __forceinline__ void cut_stretch(const CutParams& p, std::int32_t index) {
  const CascadeGroup* group = p.groups;
  while (index >= group->slice + group->stretches) ++group;
  const kernels::AttentionParams& a = p.attention;
  const std::int32_t leader = find_leader(p, *group);
  const std::int32_t stretch = index - group->slice;
  const std::int32_t first_key = stretch * group->stretch;
  Slice slice;
  if (leader < group->first + group->count) {
    slice.first_query = a.cu_seqlens_q[group->first * a.cu_seqlens_stride];
    slice.first_token = group->row + stretch * group->rows;
    slice.queries = a.cu_seqlens_q[(group->first + group->count) * a.cu_seqlens_stride] - slice.first_query;
    slice.keys = min(group->stretch, group->tokens - first_key);
    copy_entries(p, leader, a.cache.by_block_size.quotient(first_key),
                 a.cache.by_block_size.quotient(slice.keys),
                 p.stretch_table + std::int64_t{index} * p.stretch_columns, p.stretch_columns);
  }
  if (threadIdx.x == 0) p.slices[index] = slice;
}

/// The number of the group that a request is a member of, or -1.
__device__ __forceinline__ std::int32_t group_of(const CutParams& p, std::int32_t request) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  for (std::int32_t first = 0; first < p.num_groups; first += 32) {
    const std::int32_t i = first + lane;
    const bool mine =
        i < p.num_groups && request >= p.groups[i].first && request < p.groups[i].first + p.groups[i].count;
    const unsigned found = __ballot_sync(kEveryLane, mine);
    if (found != 0) return first + (__ffs(static_cast<int>(found)) - 1);
  }
  return -1;
}

/// Copies what a request has behind a prefix of `blocks` blocks, and looks whether it has them as the leader does: both
/// at once, or their loads would wait for each other. All threads of the CTA.
__device__ __forceinline__ bool begins_alike(const CutParams& p, std::int32_t request, std::int32_t leader,
                                             std::int32_t blocks, std::int32_t own_blocks,
                                             std::int32_t* own) {
  const std::int64_t column = p.attention.cache.table_stride_column;
  bool alike = blocks <= p.table_columns;
  const std::int32_t compared = alike && request != leader ? blocks : 0;
  const std::int32_t copied = min(own_blocks, min(p.own_columns, p.table_columns - blocks));
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < max(compared, copied); i += kCutThreads) {
    std::int32_t mine = 0, his = 0, behind = 0;
    if (i < compared) {
      mine = table_row(p, request)[i * column];
      his = table_row(p, leader)[i * column];
    }
    if (i < copied) behind = table_row(p, request)[(blocks + i) * column];
    alike = alike && mine == his;
    if (i < copied) own[i] = behind;
  }
  return __syncthreads_and(alike ? 1 : 0) != 0;
}

__device__ __forceinline__ void cut_request(const CutParams& p, std::int32_t request) {
  const kernels::AttentionParams& a = p.attention;
  const std::int32_t first_query = a.cu_seqlens_q[request * a.cu_seqlens_stride];
  const std::int32_t keys = a.seq_lens[request * a.seq_lens_stride];
  Source source;
  source.first_token = first_query;
  source.queries = a.cu_seqlens_q[(request + 1) * a.cu_seqlens_stride] - first_query;
  source.own = p.own_row + first_query;
  std::int32_t* const own = p.own_table + std::int64_t{request} * p.own_columns;
  const auto blocks_of = [&a](std::int32_t n) {
    return a.cache.by_block_size.quotient(n + a.cache.block_size - 1);
  };
  std::int32_t shared = 0;
  const std::int32_t index = group_of(p, request);
  const CascadeGroup group = p.groups[max(0, index)];
  const std::int32_t leader = index >= 0 ? find_leader(p, group) : request;
  if (index >= 0 && long_enough(a, source.queries, keys, group.tokens) &&
      begins_alike(p, request, leader, a.cache.by_block_size.quotient(group.tokens),
                   blocks_of(keys - group.tokens), own)) {
    shared = group.tokens;
    source.prefix = group.row + first_query - a.cu_seqlens_q[group.first * a.cu_seqlens_stride];
    source.rows = group.rows;
    source.stretches = group.stretches;
  } else {
    copy_entries(p, request, 0, blocks_of(keys), own, p.own_columns);
  }
  if (threadIdx.x == 0) {
    p.sources[request] = source;
    p.slices[p.num_stretches + request] = {first_query, source.own, source.queries, keys - shared};
  }
}

__global__ void __launch_bounds__(kCutThreads) latent_cut(const __grid_constant__ CutParams p) {
  ptx::let_next_launch_start();
  ptx::wait_for_previous_launch();
  const auto index = static_cast<std::int32_t>(blockIdx.x);
  if (index < p.num_stretches) {
    cut_stretch(p, index);
  } else {
    cut_request(p, index - p.num_stretches);
  }
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(kEveryLane, x, d));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(kEveryLane, x, d);
  return x;
}

/// Four neighbouring channels of a row.
__device__ __forceinline__ void store_four(const kernels::AttentionParams& a, std::int64_t at,
                                           const float4& x) {
  store_pair(a.out.data, a.out.dtype, at, make_float2(x.x, x.y));
  store_pair(a.out.data, a.out.dtype, at + 2, make_float2(x.z, x.w));
}

/// One row (token, head) by a CTA, four channels a thread. In each warp lane i weighs part i: the stretches in order,
/// then the request's own. Eight parts are on their way together, the first of them beside the weights.
__device__ __forceinline__ void join_row(const JoinParams& p, const Source& source, std::int32_t query,
                                         std::int32_t head) {
  constexpr int kAtOnce = 8;
  const kernels::AttentionParams& a = p.attention;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const std::int64_t channel = threadIdx.x * 4;
  const std::int64_t heads = a.num_heads;
  const auto row_of = [&](std::int32_t part) {
    const std::int64_t token =
        part < source.stretches ? std::int64_t{source.prefix} + std::int64_t{part} * source.rows : source.own;
    return (token + query) * heads + head;
  };
  const float lse = lane <= source.stretches ? __ldcg(p.lse + row_of(lane)) : -INFINITY;
  float factor = 0.0F;
  float4 x = {0.0F, 0.0F, 0.0F, 0.0F};
  const std::int64_t token = std::int64_t{source.first_token} + query;
#pragma unroll 1
  for (std::int32_t first = 0; first <= source.stretches; first += kAtOnce) {
    float4 y[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      y[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (first + i <= source.stretches) {
        y[i] = __ldcg(reinterpret_cast<const float4*>(p.parts + row_of(first + i) * a.latent + channel));
      }
    }
    if (first == 0) {
      const float top = warp_max(lse);
      const float weight =
          lse == -INFINITY ? 0.0F : expf(lse - top);  // what is no number stays one that is not
      const float sum = warp_sum(weight);
      factor = sum == 0.0F ? 0.0F : weight / sum;
      if (threadIdx.x == 0 && a.lse != nullptr) {
        a.lse[token * a.lse_stride_token + head * a.lse_stride_head] =
            sum == 0.0F ? -INFINITY : top + logf(sum);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float f = __shfl_sync(kEveryLane, factor, (first + i) & 31);
      if (first + i > source.stretches) continue;
      x.x += f * y[i].x;
      x.y += f * y[i].y;
      x.z += f * y[i].z;
      x.w += f * y[i].w;
    }
  }
  store_four(a, token * a.out.stride_token + head * a.out.stride_head + channel, x);
}

/// Rows of tokens that belong to no request are empty.
__device__ __forceinline__ void clear_tail(const kernels::AttentionParams& a) {
  const std::int64_t first = a.cu_seqlens_q[a.num_requests * a.cu_seqlens_stride];
  for (std::int64_t r = blockIdx.x; r < (a.num_tokens - first) * a.num_heads; r += gridDim.x) {
    const std::int64_t token = first + r / a.num_heads;
    const std::int64_t head = r % a.num_heads;
    store_four(a, token * a.out.stride_token + head * a.out.stride_head + threadIdx.x * 4, float4{});
    if (threadIdx.x == 0 && a.lse != nullptr) {
      a.lse[token * a.lse_stride_token + head * a.lse_stride_head] = -INFINITY;
    }
  }
}

/// blockIdx.y: a request, the last: what is behind them. blockIdx.x: a row.
__global__ void __launch_bounds__(kJoinThreads) latent_join(const __grid_constant__ JoinParams p) {
  ptx::let_next_launch_start();
  ptx::wait_for_previous_launch();
  const kernels::AttentionParams& a = p.attention;
  const auto request = static_cast<std::int32_t>(blockIdx.y);
  if (request == a.num_requests) {
    clear_tail(a);
    return;
  }
  const Source source = p.sources[request];
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t query = row / a.num_heads;
  if (query < source.queries) join_row(p, source, query, row - query * a.num_heads);
}

template <class Kernel, class Params>
void launch(Kernel* kernel, const char* name, dim3 grid, unsigned threads, const Params& p, void* stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  if (const cudaError_t status = cudaLaunchKernelEx(&config, kernel, p); status != cudaSuccess) {
    kernels::throw_launch_error(status, name, grid, config.blockDim, 0);
  }
}

}  // namespace

void cut(const CutParams& p, void* stream) {
  const auto slices = static_cast<unsigned>(p.num_stretches + p.attention.num_requests);
  launch(latent_cut, "latent_cut", dim3(slices), kCutThreads, p, stream);
}

void join(const JoinParams& p, void* stream) {
  const dim3 grid(static_cast<unsigned>(p.most_queries * p.attention.num_heads),
                  static_cast<unsigned>(p.attention.num_requests) + 1);
  launch(latent_join, "latent_join", grid, static_cast<unsigned>(p.attention.latent) / 4, p, stream);
}

}  // namespace mla::MLA_ARCH_NS::latent
