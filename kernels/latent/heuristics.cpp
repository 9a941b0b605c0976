// SPDX-License-Identifier: Apache-2.0
#include "latent/heuristics.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "common/visible_keys.hpp"
#include "latent/table.hpp"

namespace mla::kernels::latent {
namespace {

constexpr std::int64_t kPartKeys = 64;     // fewer are not worth a part of their own
constexpr std::int64_t kShortPart = 32;    // the same of short requests, whose parts are few and merge fast
constexpr std::int64_t kShortKeys = 2048;  // of such a request
constexpr std::int64_t kMostForced = 512;  // parts a request, which arrival.cuh can count
constexpr std::int32_t kGroupKeys = 32;
constexpr std::int64_t kLargeBlock = 64;  // keys, the same of the large-work kernel

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Own CTAs for `requests` alike, or a count of 0 where that would leave too much of the GPU idle. Measured: a
/// CTA that ends one request and begins another merges twice, so that even shares pay only then.
Clusters own_ctas(const Work& work, std::int64_t requests, std::int64_t keys) {
  // Several row groups read the same keys from the L2, where every multiprocessor counts; from memory, two
  // thirds of them are enough.
  const std::int64_t enough = work.num_sms * (work.row_groups > 1 ? 28 : 20) / 33;
  const std::int64_t room = work.num_sms / work.row_groups / requests;
  const std::int64_t least = work.row_groups == 1 && keys <= kShortKeys ? kShortPart : kPartKeys;
  const std::int64_t wanted = ceil_div(keys, least);
  std::int64_t each = std::min(room, wanted);
  if (each == 0 || (each < wanted && each * requests * work.row_groups < enough)) return {1, 0, 0};
  // A power of two parts has as many slices, all alike.
  const auto even = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(each)));
  if (even * 20 >= each * 19) each = even;
  return {1, static_cast<std::int32_t>(each * requests), static_cast<std::int32_t>(each)};
}

Clusters forced(const Work& work) {
  const auto requests = static_cast<std::int64_t>(work.keys.size());
  const bool counted = requests * work.row_groups * kCounterWords <= kCountersPerPlan;
  const std::int64_t each = counted ? std::min<std::int64_t>(work.splits, kMostForced) : 1;
  return {1, static_cast<std::int32_t>(each * requests), static_cast<std::int32_t>(each)};
}

}  // namespace

std::int64_t most_rows(const AttentionShape& shape) {
  std::int64_t queries = 1;
  for (const Request& r : shape.batch) queries = std::max<std::int64_t>(queries, r.q_len);
  return queries * shape.dims.num_heads;
}

std::vector<std::int64_t> keys_of(const AttentionShape& shape) {
  std::vector<std::int64_t> keys;
  for (const Request& r : shape.batch) keys.push_back(std::max<std::int64_t>(1, visible_keys(shape, r)));
  return keys;
}

std::int64_t resident_clusters(std::int64_t size, std::int64_t num_sms) {
  // Measured on 132 multiprocessors: 66 clusters of 2, 30 of 4, 15 of 8.
  const std::int64_t of_132 = size == 1 ? 132 : size == 2 ? 66 : size == 4 ? 30 : 15;
  return std::max<std::int64_t>(1, of_132 * num_sms / 132);
}

Clusters choose_small(const Work& work) {
  const auto requests = static_cast<std::int64_t>(work.keys.size());
  if (requests == 0) return {};
  if (work.splits > 0) return forced(work);
  const std::int64_t total = std::accumulate(work.keys.begin(), work.keys.end(), std::int64_t{0});
  const auto [least, most] = std::minmax_element(work.keys.begin(), work.keys.end());

  if (*least * 10 >= *most * 9) {
    if (const Clusters own = own_ctas(work, requests, *most); own.count > 0) return own;
  }
  const std::int64_t room = std::max<std::int64_t>(1, work.num_sms / work.row_groups);
  return {1, static_cast<std::int32_t>(std::clamp<std::int64_t>(total / kPartKeys, 1, room)), 0};
}

std::int64_t small_rows(std::span<const std::int64_t> keys, std::int64_t rows) {
  if (rows <= 16) return 16;
  // Measured: CTAs with 16 rows each start and merge faster than half as many with 32, until the keys count that
  // all of them read.
  constexpr std::int64_t kFewKeys = 32 * 1024;
  const std::int64_t total = std::accumulate(keys.begin(), keys.end(), std::int64_t{0});
  return total * ceil_div(rows, 16) <= kFewKeys ? 16 : 32;
}

std::int64_t fixed_parts(std::span<const std::int64_t> keys) {
  std::int64_t parts = 0;
  for (const std::int64_t n : keys) {
    parts += std::clamp<std::int64_t>(ceil_div(n, std::int64_t{kGroupKeys} * kFixedPartGroups), 1,
                                      kMostFixedParts);
  }
  return parts;
}

Clusters choose_invariant(const Work& work) {
  if (work.keys.empty()) return {};
  const std::int64_t room = std::max<std::int64_t>(1, work.num_sms / work.row_groups);
  return {1, static_cast<std::int32_t>(std::min(fixed_parts(work.keys), room)), 0};
}

Clusters choose_large(const Work& work, std::int32_t size) {
  const auto requests = static_cast<std::int64_t>(work.keys.size());
  Clusters c;
  c.size = size;
  if (requests == 0) return c;
  const std::int64_t units = requests * work.row_groups;
  if (work.splits > 0) {
    const bool counted = units * size <= kCountersPerPlan;  // a counter for each CTA's rows of a unit
    c.per_request = counted ? static_cast<std::int32_t>(std::min<std::int64_t>(work.splits, kMostForced)) : 1;
    c.count = static_cast<std::int32_t>(requests * c.per_request);
    return c;
  }
  const std::int64_t room = resident_clusters(size, work.num_sms);
  std::int64_t blocks = 0;
  for (const std::int64_t keys : work.keys) blocks += ceil_div(keys, kLargeBlock) * work.row_groups;
  const auto [least, most] = std::minmax_element(work.keys.begin(), work.keys.end());
  std::int64_t all = room / work.row_groups * work.row_groups;
  if (*least == *most) {
    for (std::int64_t n = all; n * 20 >= room * 19; n -= work.row_groups) {
      if (n % units == 0 || units % n == 0) {
        all = n;
        break;
      }
    }
  }
  // The device leaves ranges without a block idle; none are launched that would be.
  c.count = static_cast<std::int32_t>(std::clamp<std::int64_t>(
      ceil_div(blocks, work.row_groups), 1, std::max<std::int64_t>(1, all / work.row_groups)));
  return c;
}

bool suits_large(const AttentionShape& shape) {
  return shape.dims.kv_lora_rank == 512 && shape.dims.qk_rope_head_dim == 64 && shape.block_size % 16 == 0;
}

bool prefers_large(std::span<const std::int64_t> keys, std::int64_t rows, std::int64_t num_sms) {
  if (rows <= 32 || keys.empty()) return false;  // at least half of its products would be padding
  // Nanoseconds on an H200 (132 multiprocessors) as measured; docs/kernels/cuda-latent-large.md has the points.
  constexpr std::int64_t kSmall = 12'000, kSmallKey = 200;  // 1024 keys of 32 rows
  constexpr std::int64_t kLarge = 14'200, kBlock = 2'250, kPairBlock = 1'830;
  constexpr std::int64_t kPart = 140, kFewParts = 16, kMorePart = 10;  // slices of many parts are small
  const std::int64_t size = rows > 64 ? 2 : 1;
  const std::int64_t groups = ceil_div(rows, 64 * size);
  const std::int64_t units = static_cast<std::int64_t>(keys.size()) * groups;
  std::int64_t total = 0, blocks = 0;
  for (const std::int64_t n : keys) {
    total += n;
    blocks += ceil_div(n, kLargeBlock) * groups;
  }
  const std::int64_t ranges = std::min(blocks, resident_clusters(size, num_sms));
  const std::int64_t parts = ranges > units ? ceil_div(ranges, units) : 0;  // a cut unit's, to be added up
  const std::int64_t large = kLarge + ceil_div(blocks, ranges) * (size == 1 ? kBlock : kPairBlock) +
                             std::min(parts, kFewParts) * kPart +
                             std::max<std::int64_t>(0, parts - kFewParts) * kMorePart;
  const std::int64_t small = kSmall + total * ceil_div(rows, 32) * kSmallKey / 1024 * 132 / num_sms;
  return large < small;
}

}  // namespace mla::kernels::latent
