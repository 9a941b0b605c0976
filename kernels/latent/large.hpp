// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/params.hpp"

struct float2;

namespace mla::kernels::latent {

/// Tokens of a block, the unit in which work is dealt out.
inline constexpr std::int32_t kLargeBlock = 64;

/// One call of the large-work kernel (kernels/latent/large.cuh).
struct LargeParams {
  AttentionParams attention;
  FastDivide by_heads;
  float scale_log2 = 1.0F;       // softmax scale * log2(e)
  std::int32_t clusters = 1;     // pairs of CTAs launched: ranges that the blocks are dealt out to, at most
  std::int32_t box = 32;         // tokens of a tensor copy: 32, or 16 for page sizes that 32 does not divide
  float* partial_out = nullptr;  // [2 clusters, pair, 2 warpgroups] records of 64 x 256 floats, in the threads' own order
  float2* partial_sum = nullptr;     // [2 clusters, pair, 2 warpgroups, 64] (maximum of the scores * log2 e, sum)
  std::int32_t* arrived = nullptr;   // [2 clusters, pair, 2 warpgroups], zeros; the kernel leaves zeros behind
};

}  // namespace mla::kernels::latent
