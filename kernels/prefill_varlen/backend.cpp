// SPDX-License-Identifier: Apache-2.0
#include "expand/engine.hpp"

namespace mla {

const Backend& prefill_varlen_backend() {
  static const kernels::expand::ExpandedBackend backend(
      BackendInfo{
          .name = "cuda-prefill-varlen",
          .summary = "decompresses all keys once, then flash attention over ragged requests without padding",
          .strategy = "expanded",
          .on_device = true,
          .edges = {32, 64, 128, 256},
          .batch_invariant = false},
      kernels::expand::Strategy{
          .phase = Phase::kPrefill, .passes = {kernels::expand::Part::kAll}, .chunk_bytes = 0});
  return backend;
}

}  // namespace mla
