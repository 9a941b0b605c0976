// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, as a list that can be walked by index: at most two runs of positions.
#pragma once

#include <cstdint>

#include "common/params.hpp"

namespace mla::MLA_ARCH_NS {

/// Keys 0 .. first_end-1, then second_begin .. second_begin + count - first_end - 1.
struct KeyRuns {
  std::int32_t first_end = 0;
  std::int32_t second_begin = 0;
  std::int32_t count = 0;

  __device__ __forceinline__ std::int32_t position(std::int32_t i) const {
    return i < first_end ? i : i - first_end + second_begin;
  }
};

/// Keys seen by at least one of the queries at positions first_query .. last_query of a request with `keys`
/// keys. For a single query these are exactly the keys it sees. Positions below 0 see nothing under a causal
/// mask.
__device__ __forceinline__ KeyRuns visible_keys(const kernels::AttentionParams& p, std::int32_t first_query,
                                                std::int32_t last_query, std::int32_t keys) {
  KeyRuns runs;
  if (!p.causal) {
    runs.count = keys;
    return runs;
  }
  const std::int32_t end = max(0, min(keys, last_query + 1));
  runs.count = end;
  if (p.window > 0) {
    const std::int32_t begin = max(0, first_query - p.window + 1);
    const std::int32_t sink = min(p.sink, end);
    if (begin > sink) {  // else the window reaches back to the sink: one run
      runs.first_end = sink;
      runs.second_begin = begin;
      runs.count = sink + max(0, end - begin);
    }
  }
  return runs;
}

/// Whether the query at position `query` sees key `key` of the request (the rule of mla::Mask::sees; 0 <= key
/// < keys).
__device__ __forceinline__ bool sees(const kernels::AttentionParams& p, std::int32_t query,
                                     std::int32_t key) {
  if (!p.causal) return true;
  return key <= query && (p.window <= 0 || key > query - p.window || key < p.sink);
}

/// The request that token belongs to: cu_seqlens_q[b] <= token < cu_seqlens_q[b + 1]; num_requests if none.
__device__ __forceinline__ std::int32_t find_request(const kernels::AttentionParams& p, std::int64_t token) {
  std::int32_t low = 0;
  std::int32_t high = p.num_requests;  // the answer lies in low..high
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (token < p.cu_seqlens_q[(middle + 1) * p.cu_seqlens_stride]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace mla::MLA_ARCH_NS
