// SPDX-License-Identifier: Apache-2.0
// Launches of the index kernels: grid x over requests, grid y over pieces of a request's entries.
#include <cuda_runtime.h>

#include <algorithm>

#include "common/check.hpp"
#include "index/index.cuh"

namespace mla::MLA_ARCH_NS {
namespace index {
namespace {

constexpr std::int64_t kMaxRanges = 1024;      // blocks over requests: several waves of any GPU
constexpr std::int64_t kEntriesPerThread = 8;  // before a request is spread over more blocks
constexpr std::int64_t kMaxBlocks =
    2112;  // two waves of an H200: each block adds up the requests before its own

/// `entries`: an upper bound over all requests.
dim3 grid_for(std::int64_t requests, std::int64_t entries) {
  const std::int64_t ranges = std::clamp<std::int64_t>(requests, 1, kMaxRanges);
  const std::int64_t pieces = entries / (ranges * kThreads * kEntriesPerThread);
  const std::int64_t most = std::max<std::int64_t>(kMaxBlocks / ranges, 1);
  return dim3(static_cast<unsigned>(ranges),
              static_cast<unsigned>(std::clamp<std::int64_t>(pieces, 1, most)));
}

template <class Kernel, class Params>
void launch(Kernel kernel, const char* name, dim3 grid, const Params& p, void* stream) {
  kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH(name, grid, dim3(kThreads), 0);
}

void prefill(const PrefillParams& p, void* stream) {
  launch(prefill_kernel, "index::prefill_kernel", grid_for(p.requests, p.capacity), p, stream);
}
void decode(const DecodeParams& p, void* stream) {
  launch(decode_kernel, "index::decode_kernel", grid_for(p.requests, p.requests * p.out_columns), p, stream);
}
void sparse(const SparseParams& p, void* stream) {
  launch(sparse_kernel, "index::sparse_kernel", grid_for(p.requests, p.capacity), p, stream);
}
void pages(const PageParams& p, void* stream) {
  launch(page_kernel, "index::page_kernel", grid_for(p.requests, p.capacity), p, stream);
}

}  // namespace
}  // namespace index

const kernels::index::Table& index_table() {
  static constexpr kernels::index::Table kTable{&index::prefill, &index::decode, &index::sparse,
                                                &index::pages};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
