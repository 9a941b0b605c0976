// SPDX-License-Identifier: Apache-2.0
#include "expand/engine.hpp"

namespace mla {

const Backend& prefill_ragged_backend() {
  static const kernels::expand::ExpandedBackend backend(
      BackendInfo{
          .name = "cuda-prefill-ragged",
          .summary =
              "new tokens against themselves, then the context in chunks of bounded workspace, merged by LSE",
          .strategy = "expanded",
          .on_device = true,
          .edges = {32, 64, 128, 256},
          .batch_invariant = false},
      kernels::expand::Strategy{.phase = Phase::kPrefill,
                                .passes = {kernels::expand::Part::kNew, kernels::expand::Part::kContext},
                                .chunk_bytes = std::int64_t{1} << 30});
  return backend;
}

}  // namespace mla
