// SPDX-License-Identifier: Apache-2.0
// cuda-naive: MLA attention in plain CUDA and single precision, for any shape. The oracle on the device.
//
//   q [tokens, H, L+R] (or [tokens, H, P+R]), cache rows [c_kv L | k_pe R], out [tokens, H, L] (or [.., V])
//
// One block a row (token, head):   query --+      tile of 32 keys at a time
//                                          v
//    4 warps, a key each:   s_j = scale * q . [c_j | k_j]      lanes over channels
//    128 threads, a channel each:   o_c = o_c * alpha + sum_j p_j c_j[c]
//
// Head space wraps it: first q_c = sum_p W_UK[p, c] q_p, at the end out_v = sum_c W_UV[v, c] o_c, all in f32.
// Only visible keys are walked, so nothing that is masked is ever read.
//
// Bytes: every (token, head) reads its rows again, from the L2 where they fit. Bound: L2 bandwidth and
// latency; no attempt at speed. See docs/kernels/naive.md.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "common/check.hpp"
#include "common/convert.cuh"
#include "common/paging.cuh"
#include "common/visible.cuh"
#include "naive/faults.hpp"
#include "naive/table.hpp"

namespace mla::MLA_ARCH_NS {
namespace {

using kernels::AttentionParams;
using kernels::NaiveFault;

#ifdef MLA_NAIVE_FAULTS
__constant__ int active_fault;
__device__ __forceinline__ bool has(NaiveFault fault) {
  return active_fault == static_cast<int>(fault);
}
#else
/// Faults exist in the verifier's test build only.
__device__ constexpr bool has(NaiveFault) {
  return false;
}
#endif

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kTile = kernels::kNaiveTile;
static_assert(kTile == 32, "a warp gathers the rows of a tile");

/// How a row's elements become floats. `Latent` and `Rope` are element types; kScaled rows carry a scale for
/// each 128 channels.
template <class Latent, class Rope, bool kScaled>
struct RowFormat {
  static __device__ __forceinline__ float latent(const AttentionParams& p, const std::byte* row, int c) {
    float x = to_float(reinterpret_cast<const Latent*>(row)[c]);
    if constexpr (kScaled) x *= reinterpret_cast<const float*>(row + p.cache.scale_offset)[c / 128];
    return x * p.cache.scale;  // 1 but for kFp8
  }
  static __device__ __forceinline__ float rope(const AttentionParams& p, const std::byte* row, int c) {
    const float x = to_float(reinterpret_cast<const Rope*>(row)[c]);
    return kScaled ? x : x * p.cache.scale;
  }
};

struct Shared {
  float* query;              // [L + R]
  float* out;                // [L], unnormalised; channel c belongs to thread c % kThreads
  const std::byte** latent;  // [kTile] rows of the tile
  const std::byte** rope;    // [kTile]
  float* weight;             // [kTile] scores, then weights
  int* width;                // keys of the tile

  __device__ Shared(const AttentionParams& p, std::byte* base) {
    latent = reinterpret_cast<const std::byte**>(base);
    rope = latent + kTile;
    weight = reinterpret_cast<float*>(rope + kTile);
    width = reinterpret_cast<int*>(weight + kTile);
    query = weight + kTile + 1;
    out = query + p.latent + p.rope;
  }
};

__device__ __forceinline__ float sum_over_warp(float x) {
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffU, x, d);
  return x;
}

/// The row's query in latent space: as given, or W_UK^T q_nope beside q_pe.
__device__ void load_query(const AttentionParams& p, std::int64_t token, int head, float* query) {
  if (has(NaiveFault::kHeadTile) && head > 0 && head >= p.num_heads / 16 * 16) --head;
  std::int64_t base = token * p.q.stride_token + head * p.q.stride_head;
  if (has(NaiveFault::kPackedQuery))
    base = (token * p.num_heads + head) * ((p.head_space ? p.nope : p.latent) + p.rope);
  const int split = p.head_space ? p.nope : p.latent;
#pragma unroll 1
  for (int r = threadIdx.x; r < p.rope; r += kThreads) {
    query[p.latent + r] = load_as_float(p.q.data, p.q.dtype, base + (split + r) * p.q.stride_channel);
  }
#pragma unroll 1
  for (int c = threadIdx.x; c < p.latent; c += kThreads) {
    if (!p.head_space) {
      query[c] = load_as_float(p.q.data, p.q.dtype, base + c * p.q.stride_channel);
      continue;
    }
    float sum = 0;
#pragma unroll 1
    for (int n = 0; n < p.nope; ++n) {
      const std::int64_t weight =
          head * p.w_uk.stride_token + n * p.w_uk.stride_head + c * p.w_uk.stride_channel;
      sum = fmaf(load_as_float(p.w_uk.data, p.w_uk.dtype, weight),
                 load_as_float(p.q.data, p.q.dtype, base + n * p.q.stride_channel), sum);
    }
    query[c] = sum;
  }
}

/// out[c] / sum, through W_UV in head space.
__device__ void store_output(const AttentionParams& p, std::int64_t token, int head, const float* out,
                             float inverse_sum) {
  const std::int64_t base = token * p.out.stride_token + head * p.out.stride_head;
  if (!p.head_space) {
#pragma unroll 1
    for (int c = threadIdx.x; c < p.latent; c += kThreads) {
      store_from_float(p.out.data, p.out.dtype, base + c * p.out.stride_channel, out[c] * inverse_sum);
    }
    if (has(NaiveFault::kWritesPadding) && threadIdx.x == 0 && p.out.stride_head > p.latent)
      store_from_float(p.out.data, p.out.dtype, base + p.latent, 0.0F);
    return;
  }
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int v = threadIdx.x / 32; v < p.value; v += kWarps) {
    float sum = 0;
#pragma unroll 1
    for (int c = lane; c < p.latent; c += 32) {
      const std::int64_t weight =
          head * p.w_uv.stride_token + v * p.w_uv.stride_head + c * p.w_uv.stride_channel;
      sum = fmaf(load_as_float(p.w_uv.data, p.w_uv.dtype, weight), out[c] * inverse_sum, sum);
    }
    sum = sum_over_warp(sum);
    if (lane == 0) store_from_float(p.out.data, p.out.dtype, base + v * p.out.stride_channel, sum);
  }
}

template <class Format>
__global__ void __launch_bounds__(kThreads, 8) naive_attention(const AttentionParams p) {
  extern __shared__ __align__(16) std::byte dynamic[];
  const Shared s(p, dynamic);
  const std::int64_t token = blockIdx.x / p.num_heads;
  const int head = static_cast<int>(blockIdx.x % p.num_heads);
  const int lane = threadIdx.x % 32;

  const std::int32_t request = find_request(p, token);
  KeyRuns runs;
  std::int32_t keys = 0;
  if (request < p.num_requests) {
    keys = p.seq_lens[request * p.seq_lens_stride];
    std::int32_t query = static_cast<std::int32_t>(
        keys - p.cu_seqlens_q[(request + 1) * p.cu_seqlens_stride] + token);  // N - S + i
    if (has(NaiveFault::kMaskLater)) ++query;
    runs = visible_keys(p, query, query, keys);
    if (p.topk > 0) runs.count = p.topk;
  }

  constexpr std::int32_t kFewKeys = 5;
  if (has(NaiveFault::kIllegal) && keys > kFewKeys) *reinterpret_cast<volatile int*>(16) = 0;
  if (has(NaiveFault::kEndless) && keys > kFewKeys && head == 1) {
    while (*const_cast<const volatile std::int32_t*>(p.seq_lens + request * p.seq_lens_stride) == keys) {
    }
  }

  load_query(p, token, head, s.query);
  for (int c = threadIdx.x; c < p.latent; c += kThreads) s.out[c] = 0;
  float maximum = -INFINITY;
  float sum = 0;

  if (has(NaiveFault::kLastTileLost) && runs.count > kTile) runs.count = (runs.count - 1) / kTile * kTile;
  for (std::int32_t first = 0; first < runs.count; first += kTile) {
    __syncthreads();  // the query is complete; the last tile's rows and weights are done with
    if (threadIdx.x < kTile) {
      // Valid keys move to the front, so that nothing below meets a key that does not count.
      std::int32_t position = -1;
      if (first + lane < runs.count) {
        position = p.topk > 0
                       ? p.token_index[token * p.index_stride_token + (first + lane) * p.index_stride_entry]
                       : runs.position(first + lane);
        if (has(NaiveFault::kMinusOneIsZero) && position == -1) position = 0;
        if (has(NaiveFault::kDropNewest) && position == keys - 1) position = -1;
        if (has(NaiveFault::kDropOldest) && position == 0) position = -1;
      }
      const bool valid = position >= 0 && position < keys;
      const unsigned valid_lanes = __ballot_sync(0xffffffffU, valid);
      if (valid) {
        const int j = __popc(valid_lanes & ((1U << lane) - 1U));
        std::int32_t row = request;
        if (has(NaiveFault::kTableRowZero) && position < p.seq_lens[0]) row = 0;
        const RowPlace place = place_of(p.cache, row, position);
        s.latent[j] = latent_row(p.cache, place);
        s.rope[j] = rope_row(p.cache, place);
      }
      if (lane == 0) *s.width = __popc(valid_lanes);
    }
    __syncthreads();
    const int width = *s.width;

    for (int j = threadIdx.x / 32; j < width; j += kWarps) {
      float dot = 0;
#pragma unroll 4
      for (int c = lane; c < p.latent; c += 32)
        dot = fmaf(s.query[c], Format::latent(p, s.latent[j], c), dot);
#pragma unroll 1
      for (int r = lane; r < p.rope && !has(NaiveFault::kNoRotary); r += 32) {
        dot = fmaf(s.query[p.latent + r], Format::rope(p, s.rope[j], r), dot);
      }
      dot = sum_over_warp(dot);
      if (has(NaiveFault::kScale)) dot *= 1.01F;
      if (has(NaiveFault::kHalfScores)) dot = __bfloat162float(__float2bfloat16(dot));
      if (lane == 0) s.weight[j] = dot * p.scale;
    }
    __syncthreads();

    // Every thread follows maximum and sum itself: the same numbers in the same order.
    float tile_maximum = maximum;
    for (int j = 0; j < width; ++j) tile_maximum = fmaxf(tile_maximum, s.weight[j]);
    const float pivot = tile_maximum == -INFINITY || has(NaiveFault::kNoMaximum) ? 0.0F : tile_maximum;
    float alpha = expf(maximum - pivot);
    if (has(NaiveFault::kNoRescale) || (has(NaiveFault::kNoMaximum) && first > 0)) alpha = 1.0F;
    maximum = tile_maximum;
    sum *= alpha;
    __syncthreads();  // all have read the scores
    if (threadIdx.x < width) s.weight[threadIdx.x] = expf(s.weight[threadIdx.x] - pivot);
    if (has(NaiveFault::kHalfWeights) && threadIdx.x < width)
      s.weight[threadIdx.x] = __bfloat162float(__float2bfloat16(s.weight[threadIdx.x]));
    if (!has(NaiveFault::kNoBarrier)) __syncthreads();
    for (int j = 0; j < width; ++j) sum += s.weight[j];
    for (int c = threadIdx.x; c < p.latent; c += kThreads) {
      float out = s.out[c] * alpha;
#pragma unroll 4
      for (int j = 0; j < width; ++j) {
        out = fmaf(s.weight[j], Format::latent(p, s.latent[j], c), out);
      }
      s.out[c] = out;
    }
  }
  __syncthreads();  // head space reads other threads' channels; also covers a row without keys

  // A row that saw nothing keeps sum 0 and maximum -inf; a NaN sum is no empty row.
  const bool empty = sum == 0.0F && maximum == -INFINITY;
  if (has(NaiveFault::kEmptyUnwritten) && empty) return;
  store_output(p, token, head, s.out, empty ? 0.0F : __fdividef(1.0F, sum));
  if (p.lse != nullptr && threadIdx.x == 0 && !has(NaiveFault::kLseUnwritten)) {
    float lse = empty ? -INFINITY : (has(NaiveFault::kNoMaximum) ? 0.0F : maximum) + logf(sum);
    if (has(NaiveFault::kLseBase2)) lse *= 1.4426950409F;
    if (has(NaiveFault::kEmptyLse) && empty) lse = INFINITY;
    p.lse[token * p.lse_stride_token + head * p.lse_stride_head] = lse;
  }
}

template <class Format>
void launch(const AttentionParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.num_tokens * params.num_heads));
  const std::size_t shared = kernels::naive_shared_bytes(params.latent, params.rope);
  MLA_CHECK_CUDA(cudaFuncSetAttribute(naive_attention<Format>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared)));
  naive_attention<Format><<<grid, kThreads, shared, static_cast<cudaStream_t>(stream)>>>(params);
  MLA_CHECK_LAUNCH("naive_attention", grid, kThreads, shared);
}

void run(const AttentionParams& params, void* stream) {
#ifdef MLA_NAIVE_FAULTS
  const int fault = static_cast<int>(kernels::active_naive_fault());
  MLA_CHECK_CUDA(cudaMemcpyToSymbolAsync(active_fault, &fault, sizeof fault, 0, cudaMemcpyHostToDevice,
                                         static_cast<cudaStream_t>(stream)));
#endif
  switch (params.cache.format) {
    case CacheFormat::kF32:
      return launch<RowFormat<float, float, false>>(params, stream);
    case CacheFormat::kBF16:
    case CacheFormat::kBF16Split:
      return launch<RowFormat<__nv_bfloat16, __nv_bfloat16, false>>(params, stream);
    case CacheFormat::kF16:
    case CacheFormat::kF16Split:
      return launch<RowFormat<__half, __half, false>>(params, stream);
    case CacheFormat::kFp8:
      return launch<RowFormat<E4M3, E4M3, false>>(params, stream);
    case CacheFormat::kFp8DsMla:
      return launch<RowFormat<E4M3, __nv_bfloat16, true>>(params, stream);
    case CacheFormat::kF64:
      break;  // refused by supports()
  }
}

}  // namespace

#ifdef MLA_NAIVE_FAULTS
const kernels::NaiveTable& naive_faults_table() {
#else
const kernels::NaiveTable& naive_table() {
#endif
  static constexpr kernels::NaiveTable kTable{&run};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
