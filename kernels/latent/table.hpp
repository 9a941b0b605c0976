// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/fast_divide.hpp"
#include "common/params.hpp"
#include "latent/cascade_params.hpp"

struct float2;

namespace mla::kernels::latent {

/// Which kernel: `kSmall` is made for latency (few rows, mma.sync), `kLarge` for throughput (64 rows and
/// more, wgmma).
enum class Family : std::uint8_t { kSmall, kLarge };

/// One call of cuda-latent. The rows of a request are its (query, head) pairs, head fastest, cut into row
/// groups of Variant::rows. A cluster of CTAs works on one row group: blockIdx.x = cluster * cluster_size +
/// rank, blockIdx.y = row group.
struct Params {
  AttentionParams attention;
  const Slice* slices =
      nullptr;                // [num_requests] on the device, instead of cu_seqlens_q and seq_lens, or null
  float scale_log2 = 1.0F;    // softmax scale * log2(e)
  FastDivide by_heads;        // row -> query
  FastDivide by_per_request;  // cluster -> request, where each has its own
  FastDivide by_stride;       // per_request * cluster_size, or cluster_size: from a CTA's group to its next
  std::int32_t table_columns = 0;  // of the block table: look-ups that do not wait for a length stay below
  std::int32_t row_groups = 1;     // of the request with most rows
  std::int32_t clusters = 1;       // of each row group
  std::int32_t cluster_size = 1;   // CTAs
  std::int32_t per_request = 0;    // > 0: clusters that each request has for itself; 0: all keys are laid end
                                   // to end and shared out evenly
  std::int32_t part_groups = 0;    // small work, > 0: fixed parts of about so many groups of 32 keys
  std::int32_t slots = 0;          // results of parts that each row group has room for
  bool may_wait = false;           // all CTAs fit side by side, so one may wait for others a while
  bool by_units = false;  // small work: 32 rows at a time by the copy engine, where they lie side by side
  bool by_pairs = false;  // and row groups 2 i and 2 i + 1, which see the same keys, load them together
  // Strides of the cache in bytes, which fit 32 bits: addresses cost a few multiply-adds.
  std::uint32_t latent_block = 0, latent_row = 0, rope_block = 0, rope_row = 0;
  // Workspace: results of parts of a request. A cluster may end one request and begin another: two slots.
  float* partials = nullptr;  // [row_groups, slots] of Variant::rows * L, in the kernel's own order
  float2* sums = nullptr;  // [row_groups, slots, cluster_size * rows] (maximum of score * log2 e, sum), the
                           // same
  std::int32_t* counters = nullptr;  // kCountersPerPlan, 0 at the start of every launch and at its end
};

/// A kernel: what it was compiled for and how to start it.
struct Variant {
  Family family = Family::kSmall;
  std::int32_t rows = 0;       // of a cluster
  std::int32_t latent = 0;     // L
  DType dtype = DType::kBF16;  // of queries and cache
  void (*run)(const Params& params, void* stream) = nullptr;
};

/// Entry points of one architecture.
struct Table {
  std::span<const Variant> (*variants)();
  /// Zeroed device memory of the current device, [kMostPlans, kCountersPerPlan].
  std::int32_t* (*counters)();
  /// Shared prefixes: before the two launches of the attention, and behind them.
  void (*cut)(const CutParams& params, void* stream);
  void (*join)(const JoinParams& params, void* stream);
};

inline constexpr std::int32_t kCountersPerPlan = 1024;
/// Words of a row group of a request (of a CTA's rows of it), one that counts and five that hold a bit a part.
inline constexpr std::int32_t kCounterWords = 6;
inline constexpr std::int32_t kMostParts = 160;
/// Fixed parts: groups of 32 keys of a part while there are not more parts than a request may have.
inline constexpr std::int32_t kFixedPartGroups = 8;
inline constexpr std::int32_t kMostFixedParts = 128;
inline constexpr std::int32_t kMostPlans = 1024;

/// Results of parts that the workspace has room for.
[[nodiscard]] constexpr std::int64_t slot_count(const Params& p) noexcept {
  return std::int64_t{p.row_groups} * p.slots;
}

}  // namespace mla::kernels::latent
