// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>

#include "index/table.hpp"

/// Index arrays on the device (docs/kernels/index.md). Problem: [requests] lengths and a block table to CSR
/// arrays, whose offsets are a running sum over requests, in one launch and with nothing known on the host
/// but upper bounds.
///
/// Each block takes a range of requests (grid x) and every gridDim.y-th piece of their entries (grid y). It
/// first adds up the counts of all requests before its range: requests / 256 loads a thread, from the L2,
/// cheaper than a second launch up to some ten thousand requests. Entries are then independent: position by
/// division, block id by one load, 4 to 12 bytes stored. Bound by the stores.
namespace mla::MLA_ARCH_NS::index {

using namespace mla::kernels::index;
using kernels::Strided;

inline constexpr int kThreads = 256;

/// Sum and maximum over the block's threads, known to all of them.
__device__ inline long long block_sum(long long value) {
  __shared__ long long partial[kThreads / 32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffU, value, d);
  __syncthreads();  // an earlier call's readers are done
  if ((threadIdx.x & 31) == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  long long sum = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) sum += partial[w];
  return sum;
}
__device__ inline int block_max(int value) {
  __shared__ int partial[kThreads / 32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) value = max(value, __shfl_xor_sync(0xffffffffU, value, d));
  __syncthreads();
  if ((threadIdx.x & 31) == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) value = max(value, partial[w]);
  return value;
}

/// Sum of count(r) over requests [begin, end), for all threads of the block.
template <class Count>
__device__ long long sum_counts(int begin, int end, const Count& count) {
  long long sum = 0;
  for (int r = begin + static_cast<int>(threadIdx.x); r < end; r += kThreads) sum += count(r);
  return block_sum(sum);
}
template <class Count>
__device__ int max_count(int requests, const Count& count) {
  int top = 0;
  for (int r = static_cast<int>(threadIdx.x); r < requests; r += kThreads) top = max(top, count(r));
  return block_max(top);
}

__device__ inline int as_int32(long long total) {
  return total > 0x7fffffffLL ? 0x7fffffff : static_cast<int>(total);
}

struct Range {
  int begin, end;
};
__device__ inline Range my_requests(int requests) {
  const int each = (requests + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int begin = min(requests, static_cast<int>(blockIdx.x) * each);
  return {begin, min(requests, begin + each)};
}

/// Offsets [requests + 1] and, for each entry i of each request r, open(r)(i, offset + i): open() loads what
/// all entries of a request share, so that the entries are independent of each other.
template <class Count, class Open>
__device__ void fill_csr(int requests, const Strided<std::int32_t>& offsets, const Count& count,
                         const Open& open) {
  const Range mine = my_requests(requests);
  long long offset = sum_counts(0, mine.begin, count);
  const bool writer = blockIdx.y == 0 && threadIdx.x == 0;
  if (writer && blockIdx.x == 0) offsets[0] = 0;
  for (int r = mine.begin; r < mine.end; ++r) {
    const int entries = count(r);
    const auto fill = open(r);
#pragma unroll 4
    for (int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); i < entries;
         i += static_cast<int>(gridDim.y) * kThreads)
      fill(i, offset + i);
    offset += entries;
    if (writer) offsets[r + 1] = as_int32(offset);
  }
}

__global__ void __launch_bounds__(kThreads) prefill_kernel(const __grid_constant__ PrefillParams p) {
  const auto q_len = [&](int r) { return max(0, p.q_lens[r]); };
  const auto kv_len = [&](int r) { return max(0, p.seq_lens[r]); };
  fill_csr(p.requests, p.cu_seqlens_q, q_len, [&](int r) {
    const int keys = kv_len(r), first = keys == 0 ? INT_MIN / 2 : keys - q_len(r);  // no keys: no position
    return [&p, r, first](int i, long long at) {
      if (at < p.capacity) p.slot_mapping[at] = p.table.slot(r, first + i);
    };
  });
  const long long total = sum_counts(0, p.requests, q_len);
  const long long step = static_cast<long long>(gridDim.x) * gridDim.y * kThreads;
  for (long long at =
           total + (static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x) * kThreads + threadIdx.x;
       at < p.capacity; at += step)
    p.slot_mapping[at] = kSkipSlot;
  if (blockIdx.y != 0) return;
  const Range mine = my_requests(p.requests);
  long long keys = sum_counts(0, mine.begin, kv_len);
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0) p.cu_seqlens_k[0] = 0;
    for (int r = mine.begin; r < mine.end; ++r) p.cu_seqlens_k[r + 1] = as_int32(keys += kv_len(r));
  }
  if (blockIdx.x == 0 && p.max_seq_lens) {
    const int longest_q = max_count(p.requests, q_len), longest_k = max_count(p.requests, kv_len);
    if (threadIdx.x == 0) {
      p.max_seq_lens[0] = longest_q;
      p.max_seq_lens[1] = longest_k;
    }
  }
}

__global__ void __launch_bounds__(kThreads) decode_kernel(const __grid_constant__ DecodeParams p) {
  const auto len = [&](int r) { return max(0, p.seq_lens[r] + p.added); };
  const int first = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  for (int r = static_cast<int>(blockIdx.x); r < p.requests; r += static_cast<int>(gridDim.x)) {
    const int n = len(r);
    const std::int64_t used = (static_cast<std::int64_t>(n) + p.table.block_size - 1) / p.table.block_size;
    for (std::int64_t j = first; j < p.out_columns; j += static_cast<std::int64_t>(gridDim.y) * kThreads)
      p.block_tables[r * p.out_row + j * p.out_column] = j < used ? p.table.block(r, j) : 0;
    if (blockIdx.y != 0) continue;
    for (int i = static_cast<int>(threadIdx.x); i < p.q_len; i += kThreads)
      p.slot_mapping[static_cast<std::int64_t>(r) * p.q_len + i] =
          n == 0 ? kSkipSlot : p.table.slot(r, n - p.q_len + i);
    if (threadIdx.x == 0) p.out_seq_lens[r] = n;
  }
  if (blockIdx.x == 0 && blockIdx.y == 0 && p.max_seq_len) {
    const int longest = max_count(p.requests, len);
    if (threadIdx.x == 0) p.max_seq_len[0] = longest;
  }
}

__global__ void __launch_bounds__(kThreads) sparse_kernel(const __grid_constant__ SparseParams p) {
  const auto kept = [&](int r) { return kept_keys(p.seq_lens[r], p.window, p.sink); };
  fill_csr(
      p.requests, p.kv_indptr, [&](int r) { return kept(r).keys(); },
      [&](int r) {
        return [&p, r, keys = kept(r)](int i, long long at) {
          if (at >= p.capacity) return;
          const int position = keys.key(i);
          p.kv_indices[at] = position;
          if (p.kv_slots) p.kv_slots[at] = p.table.slot(r, position);
        };
      });
  const Range mine = my_requests(p.requests);
  if (blockIdx.y == 0 && p.num_kv)
    for (int r = mine.begin + static_cast<int>(threadIdx.x); r < mine.end; r += kThreads)
      p.num_kv[r] = kept(r).keys();
}

__global__ void __launch_bounds__(kThreads) page_kernel(const __grid_constant__ PageParams p) {
  const auto kept = [&](int r) { return kept_keys(p.seq_lens[r], p.window, p.sink); };
  const int size = p.table.block_size;
  fill_csr(
      p.requests, p.indptr, [&](int r) { return kept(r).blocks(size); },
      [&](int r) {
        return [&p, r, size, keys = kept(r)](int i, long long at) {
          if (at >= p.capacity) return;
          const int logical = keys.block(i, size);
          p.indices[at] = p.table.block(r, logical);
          if (p.logical) p.logical[at] = logical;
        };
      });
  const Range mine = my_requests(p.requests);
  if (blockIdx.y == 0)
    for (int r = mine.begin + static_cast<int>(threadIdx.x); r < mine.end; r += kThreads)
      p.last_page_len[r] = last_page_len(p.seq_lens[r], size);
}

}  // namespace mla::MLA_ARCH_NS::index
