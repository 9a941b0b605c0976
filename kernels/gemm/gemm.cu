// SPDX-License-Identifier: Apache-2.0
// cuda-gemm: absorbed attention as two batched products around a softmax (docs/kernels/gemm.md).
//
//   q~ = W_UK^T q   [n, S H, L+R]        head space only; batched over heads
//   S  = q~ rows^T  [n, S H, N] f32      rows [n, N, L+R] gathered from the pages: every key is read once for all heads
//   P  = softmax    [n, S H, N] 16 bit   one block a row; sums stay f32
//   O  = P rows     [n, S H, L] f32      the first L channels of the same rows, made finite
//   o  = W_UV O     [n, S, H, V]         head space only
//
// The kernels here are what lies between the products. They move bytes: scores written and read once in f32
// and once in 16 bits are 10 bytes a (head, key) pair, which is what this strategy costs beside the fused
// ones.
#include <cuda_runtime.h>

#include "cache_ops/paged_row.cuh"
#include "common/check.hpp"
#include "gemm/table.hpp"

namespace mla::MLA_ARCH_NS {
namespace gemm {
namespace {

using namespace kernels::gemm;
using kernels::expand::request_of;
using kernels::expand::Segment;
using kernels::expand::segment_at;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) queries_kernel(const __grid_constant__ QueryParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const Group& g = p.group;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;  // (segment, query, head)
  if (row >= static_cast<std::int64_t>(g.count) * g.queries * g.heads) return;
  const int head = static_cast<int>(row % g.heads);
  const std::int64_t padded = row / g.heads;
  const int query = static_cast<int>(padded % g.queries);
  const Segment segment = segment_at(g.segments, g.first + static_cast<int>(padded / g.queries));
  const bool live = query < segment.q_len;
  const std::int64_t from = (segment.q_begin + query) * p.q_token + head * p.q_head;
  for (int c = lane; c < p.width; c += 32) {
    const float x = live ? load_as_float(p.q, g.dtype, from + c) : 0.0F;
    if (c < p.nope) {
      store_from_float(p.nope_out, g.dtype, row * p.nope + c, x);
    } else {
      store_from_float(p.out, g.dtype, row * p.out_width + p.out_first + c - p.nope, x);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 4) keys_kernel(const __grid_constant__ KeyParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const Group& g = p.group;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;  // (segment, key)
  if (row >= static_cast<std::int64_t>(g.count) * g.keys) return;
  const int s = g.first + static_cast<int>(row / g.keys), index = static_cast<int>(row % g.keys);
  const Segment segment = segment_at(g.segments, s);
  RowPlace place = cache_ops::kMissing;
  if (index < segment.keys.count()) {
    int position = segment.keys.position(index), request = s;
    if (g.segments.topk > 0) {
      request = request_of(g.segments, s);
      position = p.token_index[s * p.index_row + index * p.index_column];
      if (position >= segment.kv_len) position = -1;
    }
    place = cache_ops::checked_place(p.cache, p.table_columns, request, position);
  }
  if (p.valid != nullptr && lane == 0) p.valid[row] = place.block < 0 ? 0 : 1;
  cache_ops::gather_row(p.cache, place, p.rows, g.dtype, row * (p.latent + p.rope), p.latent, p.rope,
                        p.vector_io, lane);
}

__device__ float block_reduce(float x, bool maximum, float* shared) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, x, d);
    x = maximum ? fmaxf(x, other) : x + other;
  }
  __syncthreads();  // an earlier call's readers are done
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) x = maximum ? fmaxf(x, shared[w]) : x + shared[w];
  return x;
}

/// Whether the query at position `at` sees the key at `position`, which comes no later than the request's
/// end.
__device__ __forceinline__ bool sees(const kernels::expand::MaskParams& mask, int at, int position) {
  return !mask.causal || (position <= at && (position > at - mask.window || position < mask.sink));
}

__global__ void __launch_bounds__(kThreads) softmax_kernel(const __grid_constant__ SoftmaxParams p) {
  __shared__ float shared[kWarps];
  const Group& g = p.group;
  const std::int64_t row = blockIdx.x;
  const int head = static_cast<int>(row % g.heads);
  const std::int64_t padded = row / g.heads;
  const int query = static_cast<int>(padded % g.queries), member = static_cast<int>(padded / g.queries);
  const Segment segment = segment_at(g.segments, g.first + member);
  const auto& mask = g.segments.mask;
  const bool causal = g.segments.topk == 0 && mask.causal;
  const int at = segment.kv_len - segment.q_len + query;
  const int keys = query < segment.q_len ? min(segment.keys.count(), g.keys) : 0;
  const std::uint8_t* const valid =
      p.valid == nullptr ? nullptr : p.valid + static_cast<std::int64_t>(member) * g.keys;
  const float* const scores = p.scores + row * g.keys;
  const auto seen = [&](int index) {
    if (index >= keys || (valid != nullptr && valid[index] == 0)) return false;
    const int position = segment.keys.position(index);
    return !causal || sees(mask, at, position);
  };

  float top = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < keys; i += kThreads)
    if (seen(i)) top = fmaxf(top, scores[i]);
  top = block_reduce(top, true, shared);
  const float base = top == -INFINITY ? 0.0F : top;
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < g.keys; i += kThreads) {
    const float weight = seen(i) ? exp2f((scores[i] - base) * p.scale) : 0.0F;
    sum += weight;
    store_from_float(p.weights, g.dtype, row * g.keys + i, weight);
  }
  sum = block_reduce(sum, false, shared);
  if (threadIdx.x != 0) return;
  p.sums[row] = sum;
  if (p.lse == nullptr || query >= segment.q_len) return;
  const bool empty = top == -INFINITY && sum == 0.0F;
  p.lse[(segment.q_begin + query) * p.lse_token + head * p.lse_head] =
      empty ? -INFINITY : (base * p.scale + log2f(sum)) * 0.6931471805599453F;
}

/// A warp a key that not all queries of its segment see: the last queries - 1 keys, and the first ones of the
/// window. What the first and the last query see, all see.
__global__ void __launch_bounds__(kThreads) clear_kernel(const __grid_constant__ ClearParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const Group& g = p.group;
  const int edge = g.queries - 1;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (item >= static_cast<std::int64_t>(g.count) * 2 * edge) return;
  const int member = static_cast<int>(item / (2 * edge)), c = static_cast<int>(item % (2 * edge));
  const Segment segment = segment_at(g.segments, g.first + member);
  const int index = c < edge ? segment.keys.count() - 1 - c : segment.keys.sink_end + c - edge;
  if (index < 0 || index >= min(segment.keys.count(), g.keys)) return;
  const int position = segment.keys.position(index);
  if (sees(g.segments.mask, segment.kv_len - segment.q_len, position) &&
      sees(g.segments.mask, segment.kv_len - 1, position))
    return;
  auto* const row =
      static_cast<std::uint16_t*>(p.rows) + (static_cast<std::int64_t>(member) * g.keys + index) * p.width;
  const std::uint16_t exponent = g.dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
  for (int channel = lane; channel < p.latent; channel += 32)
    if ((row[channel] & exponent) == exponent) row[channel] = 0;
}

__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ FinishParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const Group& g = p.group;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= static_cast<std::int64_t>(g.count) * g.queries * g.heads) return;
  const std::int64_t head = row % g.heads, padded = row / g.heads;
  std::int64_t to = row * p.width;
  if (!p.padded) {
    const Segment segment = segment_at(g.segments, g.first + static_cast<int>(padded / g.queries));
    const int query = static_cast<int>(padded % g.queries);
    if (query >= segment.q_len) return;
    to = (segment.q_begin + query) * p.out_token + head * p.out_head;
  }
  float factor = p.scale;
  bool empty = false;
  if (p.sums != nullptr) {
    const float sum = p.sums[row];
    empty = sum == 0.0F;  // no visible key: what the product holds is 0 too, but 0 / 0 is not
    factor = empty ? 0.0F : p.scale / sum;
  }
  for (int c = lane; c < p.width; c += 32) {
    const float x = load_as_float(p.in, p.in_dtype, row * p.width + c);
    store_from_float(p.out, p.out_dtype, to + c, empty ? 0.0F : x * factor);
  }
}

unsigned blocks_for(std::int64_t rows) {
  return static_cast<unsigned>((rows + kWarps - 1) / kWarps);
}

template <class Kernel, class Params>
void launch(Kernel kernel, const char* name, unsigned blocks, const Params& p, void* stream) {
  if (blocks == 0) return;
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH(name, dim3(blocks), dim3(kThreads), 0);
}

std::int64_t padded_rows(const Group& g) {
  return static_cast<std::int64_t>(g.count) * g.queries * g.heads;
}

void queries(const QueryParams& p, void* stream) {
  launch(queries_kernel, "gemm::queries_kernel", blocks_for(padded_rows(p.group)), p, stream);
}
void keys(const KeyParams& p, void* stream) {
  launch(keys_kernel, "gemm::keys_kernel",
         blocks_for(static_cast<std::int64_t>(p.group.count) * p.group.keys), p, stream);
}
void softmax(const SoftmaxParams& p, void* stream) {
  launch(softmax_kernel, "gemm::softmax_kernel", static_cast<unsigned>(padded_rows(p.group)), p, stream);
}
void clear(const ClearParams& p, void* stream) {
  const std::int64_t keys = static_cast<std::int64_t>(p.group.count) * 2 * (p.group.queries - 1);
  launch(clear_kernel, "gemm::clear_kernel", blocks_for(keys), p, stream);
}
void finish(const FinishParams& p, void* stream) {
  launch(finish_kernel, "gemm::finish_kernel", blocks_for(padded_rows(p.group)), p, stream);
}

}  // namespace
}  // namespace gemm

const kernels::gemm::Table& gemm_table() {
  static constexpr kernels::gemm::Table kTable{&gemm::queries, &gemm::keys, &gemm::softmax, &gemm::clear,
                                               &gemm::finish};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
