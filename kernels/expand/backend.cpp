// SPDX-License-Identifier: Apache-2.0
#include "expand/engine.hpp"

namespace mla {

const Backend& expand_backend() {
  static const kernels::expand::ExpandedBackend backend(
      BackendInfo{
          .name = "cuda-expand",
          .summary =
              "decompresses the latent to K and V of every head, a bounded piece at a time, then MHA decode",
          .strategy = "expanded",
          .on_device = true,
          .edges = {16, 32, 256},
          .batch_invariant = false},
      kernels::expand::Strategy{.phase = Phase::kDecode,
                                .passes = {kernels::expand::Part::kAll},
                                .chunk_bytes = std::int64_t{1} << 30});
  return backend;
}

}  // namespace mla
