// SPDX-License-Identifier: Apache-2.0
// Launches of the index kernels: grid x over requests, grid y over pieces of a request's entries.
#include <cuda_runtime.h>

#include "common/check.hpp"
#include "common/grid.hpp"
#include "index/index.cuh"

namespace mla::MLA_ARCH_NS {
namespace index {
namespace {

constexpr unsigned kMostBlocks = 65535;        // of a grid's second dimension, and more than a wave
constexpr std::int64_t kEntriesPerThread = 2;  // before a request is spread over more blocks of the wave

std::int64_t at_least_one(std::int64_t n) {
  return n < 1 ? 1 : n;
}

/// One wave at most, since each block adds up the requests before its own. `entries`: an upper bound over all
/// requests.
template <class Params>
void launch(void (*kernel)(Params), const char* name, std::int64_t requests, std::int64_t entries,
            const Params& p, void* stream) {
  const std::int64_t some = at_least_one(requests);
  const std::int64_t pieces = at_least_one(entries / some / (kThreads * kEntriesPerThread));
  const std::int64_t wave = kernels::one_wave(reinterpret_cast<const void*>(kernel), kThreads,
                                              kernels::blocks_for(some * pieces, 1, kMostBlocks));
  const std::int64_t ranges = some < wave ? some : wave, room = wave / ranges;
  const dim3 grid(static_cast<unsigned>(ranges), static_cast<unsigned>(pieces < room ? pieces : room));
  kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH(name, grid, dim3(kThreads), 0);
}

void prefill(const PrefillParams& p, void* stream) {
  launch(prefill_kernel, "index::prefill_kernel", p.requests, p.capacity, p, stream);
}
void decode(const DecodeParams& p, void* stream) {
  launch(decode_kernel, "index::decode_kernel", p.requests, p.requests * p.out_columns, p, stream);
}
void sparse(const SparseParams& p, void* stream) {
  launch(sparse_kernel, "index::sparse_kernel", p.requests, p.capacity, p, stream);
}
void pages(const PageParams& p, void* stream) {
  launch(page_kernel, "index::page_kernel", p.requests, p.capacity, p, stream);
}

}  // namespace
}  // namespace index

const kernels::index::Table& index_table() {
  static constexpr kernels::index::Table kTable{&index::prefill, &index::decode, &index::sparse,
                                                &index::pages};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
