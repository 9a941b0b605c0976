// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "latent/cascade_params.hpp"
#include "mla/backend.hpp"

namespace mla::kernels::latent {

/// A call with shared prefixes as two calls without (cascade.cu), from upper bounds alone. No CUDA in here.
struct Cascade {
  AttentionShape prefix;  // its requests are the stretches
  AttentionShape own;     // what each request has behind its prefix
  std::vector<CascadeGroup> groups;
  std::int32_t stretch_columns = 1,
               own_columns = 1;   // of the block tables, the second with room for whole requests
  std::int32_t own_row = 0;       // of partial results, in tokens
  std::int64_t rows = 0;          // all of them
  std::int32_t most_queries = 1;  // of a request
};

/// What stands in the way of reading shared prefixes once.
[[nodiscard]] Support supports_cascade(const AttentionShape& shape, std::int64_t most_rows);

/// Whether reading the prefixes once is the faster way, by a model of what both take.
[[nodiscard]] bool cascade_pays(const AttentionShape& shape, std::int64_t num_sms);

/// `whole`: prefixes stay whole, for kernels that share out a request's keys themselves. Else they are cut into stretches
/// so that every cluster of the large-work kernel has about one, whose results are added up by all.
[[nodiscard]] Cascade make_cascade(const AttentionShape& shape, std::int64_t num_sms, bool whole);

}  // namespace mla::kernels::latent
