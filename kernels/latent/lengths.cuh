// SPDX-License-Identifier: Apache-2.0
// Where a launch's requests are: as the call says, or as slices that the launch before it has written
// (cascade.cu).
#pragma once

#include <cstdint>

#include "latent/table.hpp"

namespace mla::MLA_ARCH_NS::latent {

using kernels::latent::Params;

/// Where a request's rows are and how many keys it has.
struct Lengths {
  std::int32_t first_query = 0;  // row of q of the request's first query
  std::int32_t first_token = 0;  // the same of out and lse
  std::int32_t queries = 0;
  std::int32_t keys = 0;  // new tokens included

  __device__ __forceinline__ Lengths() {}
  __device__ __forceinline__ Lengths(const Params& p, std::int32_t request) {
    if (p.slices != nullptr) {
      const kernels::latent::Slice slice = p.slices[request];
      first_query = slice.first_query;
      first_token = slice.first_token;
      queries = slice.queries;
      keys = slice.keys;
      return;
    }
    const kernels::AttentionParams& a = p.attention;
    first_query = first_token = a.cu_seqlens_q[request * a.cu_seqlens_stride];
    queries = a.cu_seqlens_q[(request + 1) * a.cu_seqlens_stride] - first_token;
    keys = a.seq_lens[request * a.seq_lens_stride];
  }
};

}  // namespace mla::MLA_ARCH_NS::latent
