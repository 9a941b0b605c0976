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
/// division, block id by one load, 4 to 12 bytes stored; four loads of a thread are in flight. Bound by the
/// memory.
namespace mla::MLA_ARCH_NS::index {

using namespace mla::kernels::index;
using kernels::Strided;

inline constexpr int kThreads = 256;
/// A multiprocessor's, of the registers that four loads in flight need: 48, but on 12.0 the page kernel spills with those.
inline constexpr int kBlocks = MLA_ARCH_ID == 120 ? 4 : 5;

/// Sums over the block's threads, known to all of them.
template <int kSums>
__device__ inline void block_sums(long long (&values)[kSums]) {
  __shared__ long long partial[kThreads / 32][kSums];
#pragma unroll
  for (long long& value : values) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffU, value, d);
  }
  if ((threadIdx.x & 31) == 0) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) partial[threadIdx.x / 32][i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    values[i] = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) values[i] += partial[w][i];
  }
}
/// The same of the maximum.
__device__ inline int block_max(int value) {
  __shared__ int partial[kThreads / 32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) value = max(value, __shfl_xor_sync(0xffffffffU, value, d));
  __syncthreads();  // an earlier call's readers are done
  if ((threadIdx.x & 31) == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) value = max(value, partial[w]);
  return value;
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

/// Entries of the requests before this block's own.
template <class Count>
__device__ long long entries_before(int requests, const Count& count) {
  const int begin = my_requests(requests).begin;
  long long sum[1] = {0};
#pragma unroll 4
  for (int r = static_cast<int>(threadIdx.x); r < begin; r += kThreads) sum[0] += count(r);
  block_sums(sum);
  return sum[0];
}

/// store(i, load(i)) for this block's share of i in [0, entries). Loads of several entries are made before the
/// first is waited for: with one at a time the memory's latency is all that shows.
template <class Load, class Store>
__device__ inline void each_entry(std::int64_t entries, const Load& load, const Store& store) {
  constexpr int kTogether = 4;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kThreads;
  std::int64_t i = blockIdx.y * kThreads + threadIdx.x;
  for (; i + (kTogether - 1) * step < entries; i += kTogether * step) {
    decltype(load(i)) loaded[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) loaded[u] = load(i + u * step);
#pragma unroll
    for (int u = 0; u < kTogether; ++u) store(i + u * step, loaded[u]);
  }
  for (; i < entries; i += step) store(i, load(i));
}

/// Offsets [requests + 1] from `offset` on and, for each entry i of each request r, open(r).store(i, offset + i,
/// open(r).load(i)) where that is below the capacity: open() makes what all entries of a request share.
template <class Count, class Open>
__device__ void fill_csr(int requests, long long offset, long long capacity,
                         const Strided<std::int32_t>& offsets, const Count& count, const Open& open) {
  const Range mine = my_requests(requests);
  const bool writer = blockIdx.y == 0 && threadIdx.x == 0;
  if (writer && blockIdx.x == 0) offsets[0] = 0;
  for (int r = mine.begin; r < mine.end; ++r) {
    const long long entries = count(r);
    const auto fill = open(r);
    each_entry(
        min(entries, capacity - offset), [&](std::int64_t i) { return fill.load(static_cast<int>(i)); },
        [&](std::int64_t i, const auto& loaded) { fill.store(static_cast<int>(i), offset + i, loaded); });
    offset += entries;
    if (writer) offsets[r + 1] = as_int32(offset);
  }
}

/// The new tokens of a request, from position `first` on.
struct NewSlots {
  const PrefillParams& p;
  int request, first;
  __device__ std::int32_t load(int i) const {
    return p.table.stored(request, p.table.logical_block(first + i));
  }
  __device__ void store(int i, long long at, std::int32_t id) const {
    p.slot_mapping[at] = p.table.slot_in(id, first + i);
  }
};

__global__ void __launch_bounds__(kThreads, kBlocks) prefill_kernel(const __grid_constant__ PrefillParams p) {
  const auto q_len = [&](int r) { return max(0, p.q_lens[r]); };
  const auto kv_len = [&](int r) { return max(0, p.seq_lens[r]); };
  const Range mine = my_requests(p.requests);
  enum { kQueriesBefore, kKeysBefore, kQueries, kSums };
  long long sums[kSums] = {};
#pragma unroll 4
  for (int r = static_cast<int>(threadIdx.x); r < p.requests; r += kThreads) {
    const int queries = q_len(r);
    sums[kQueries] += queries;
    if (r < mine.begin) sums[kQueriesBefore] += queries, sums[kKeysBefore] += kv_len(r);
  }
  block_sums(sums);
  fill_csr(p.requests, sums[kQueriesBefore], p.capacity, p.cu_seqlens_q, q_len, [&](int r) {
    const int keys = kv_len(r), first = keys == 0 ? INT_MIN / 2 : keys - q_len(r);  // no keys: no position
    return NewSlots{p, r, first};
  });
  const long long step = static_cast<long long>(gridDim.x) * gridDim.y * kThreads;
  for (long long at = sums[kQueries] +
                      (static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x) * kThreads + threadIdx.x;
       at < p.capacity; at += step)
    p.slot_mapping[at] = kNoSlot;
  if (blockIdx.y != 0) return;
  if (threadIdx.x == 0) {
    long long keys = sums[kKeysBefore];
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

__global__ void __launch_bounds__(kThreads, kBlocks) decode_kernel(const __grid_constant__ DecodeParams p) {
  const auto len = [&](int r) { return max(0, p.seq_lens[r] + p.added); };
  for (int r = static_cast<int>(blockIdx.x); r < p.requests; r += static_cast<int>(gridDim.x)) {
    const int n = len(r);
    const std::int64_t used = (static_cast<std::int64_t>(n) + p.table.block_size - 1) / p.table.block_size;
    std::int32_t* const row = p.block_tables + r * p.out_row;
    each_entry(
        p.out_columns, [&](std::int64_t j) { return j < used ? p.table.stored(r, j) : 0; },
        [&](std::int64_t j, std::int32_t id) { row[j * p.out_column] = max(id, -1); });
    if (blockIdx.y != 0) continue;
    for (int i = static_cast<int>(threadIdx.x); i < p.q_len; i += kThreads)
      p.slot_mapping[static_cast<std::int64_t>(r) * p.q_len + i] =
          n == 0 ? kNoSlot : p.table.slot(r, n - p.q_len + i);
    if (threadIdx.x == 0) p.out_seq_lens[r] = n;
  }
  if (blockIdx.x == 0 && blockIdx.y == 0 && p.max_seq_len) {
    const int longest = max_count(p.requests, len);
    if (threadIdx.x == 0) p.max_seq_len[0] = longest;
  }
}

/// The keys that a request's newest token sees.
struct KeptKeys {
  const SparseParams& p;
  int request;
  Kept keys;
  __device__ std::int32_t load(int i) const {
    return p.kv_slots ? p.table.stored(request, p.table.logical_block(keys.key(i))) : -1;
  }
  __device__ void store(int i, long long at, std::int32_t id) const {
    const int position = keys.key(i);
    p.kv_indices[at] = position;
    if (p.kv_slots) p.kv_slots[at] = p.table.slot_in(id, position);
  }
};

__global__ void __launch_bounds__(kThreads, kBlocks) sparse_kernel(const __grid_constant__ SparseParams p) {
  const auto kept = [&](int r) { return kept_keys(p.seq_lens[r], p.window, p.sink); };
  const auto keys = [&](int r) { return kept(r).keys(); };
  fill_csr(p.requests, entries_before(p.requests, keys), p.capacity, p.kv_indptr, keys, [&](int r) {
    return KeptKeys{p, r, kept(r)};
  });
  const Range mine = my_requests(p.requests);
  if (blockIdx.y == 0 && p.num_kv)
    for (int r = mine.begin + static_cast<int>(threadIdx.x); r < mine.end; r += kThreads)
      p.num_kv[r] = kept(r).keys();
}

/// The pages of those keys.
struct KeptPages {
  const PageParams& p;
  int request;
  KeptBlocks blocks;
  __device__ std::int32_t load(int i) const { return p.table.stored(request, blocks.block(i)); }
  __device__ void store(int i, long long at, std::int32_t id) const {
    p.indices[at] = max(id, -1);
    if (p.logical) p.logical[at] = blocks.block(i);
  }
};

__global__ void __launch_bounds__(kThreads, kBlocks) page_kernel(const __grid_constant__ PageParams p) {
  const int size = p.table.block_size;
  const auto kept = [&](int r) { return KeptBlocks(kept_keys(p.seq_lens[r], p.window, p.sink), size); };
  const auto blocks = [&](int r) { return kept(r).blocks(); };
  fill_csr(p.requests, entries_before(p.requests, blocks), p.capacity, p.indptr, blocks, [&](int r) {
    return KeptPages{p, r, kept(r)};
  });
  const Range mine = my_requests(p.requests);
  if (blockIdx.y == 0)
    for (int r = mine.begin + static_cast<int>(threadIdx.x); r < mine.end; r += kThreads)
      p.last_page_len[r] = p.seq_lens[r] <= 0 ? 0 : (p.seq_lens[r] - 1) % size + 1;
}

}  // namespace mla::MLA_ARCH_NS::index
