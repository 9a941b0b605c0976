// SPDX-License-Identifier: Apache-2.0
#include "latent/heuristics.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "latent/table.hpp"

namespace mla::kernels::latent {
namespace {

constexpr std::int32_t kMostSize = 8;
constexpr std::int64_t kUnitKeys = 32;    // that a CTA takes at a time
constexpr std::int64_t kLargeBlock = 64;  // keys, the same of the large-work kernel

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Clusters of eight that a request alone is worth (docs/kernels/cuda-latent.md): each costs the merge its
/// part.
std::int64_t worth(std::int64_t keys) {
  if (keys > 9 * 1024) return 15;
  return std::min<std::int64_t>(8, ceil_div(keys, kMostSize * kUnitKeys));
}

/// Own clusters for `requests` alike: the largest that keep `enough` multiprocessors busy, or as many as the
/// keys are worth. A count of 0 if there are none. Measured: a cluster with two pieces does them one after
/// the other, so that even shares pay only where own clusters would leave too much idle
/// (docs/kernels/cuda-latent.md).
Clusters own_clusters(const Work& work, std::int64_t requests, std::int64_t keys) {
  // Several row groups read the same keys from the L2, where every multiprocessor counts; from memory, two
  // thirds of them are enough.
  const std::int64_t enough = work.num_sms * (work.row_groups > 1 ? 28 : 20) / 33;
  for (std::int32_t size = kMostSize; size > 0; size /= 2) {
    const std::int64_t room = resident_clusters(size, work.num_sms) / work.row_groups / requests;
    const std::int64_t wanted =
        std::min(ceil_div(worth(keys) * kMostSize, size), ceil_div(keys, size * kUnitKeys));
    const std::int64_t each = std::min(room, wanted);
    if (each == 0) continue;
    if (each == wanted || each * requests * work.row_groups * size >= enough) {
      return {size, static_cast<std::int32_t>(each * requests), static_cast<std::int32_t>(each)};
    }
  }
  return {1, 0, 0};
}

Clusters forced(const Work& work) {
  const auto requests = static_cast<std::int64_t>(work.keys.size());
  Clusters c;
  c.size = std::min<std::int32_t>(
      kMostSize, static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(work.splits))));
  std::int64_t each = ceil_div(work.splits, c.size);
  if (each > 1) {  // then parts are counted, and each slice has a counter
    const std::int64_t slices = requests * work.row_groups * c.size;
    if (slices > kCountersPerPlan) each = 1;
  }
  c.per_request = static_cast<std::int32_t>(each);
  c.count = static_cast<std::int32_t>(requests * each);
  return c;
}

}  // namespace

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
    if (const Clusters own = own_clusters(work, requests, *most); own.count > 0) return own;
  }
  Clusters c;
  c.size = requests < 16 ? kMostSize : requests < 64 ? 4 : 2;
  while (c.size > 1 && resident_clusters(c.size, work.num_sms) < work.row_groups) c.size /= 2;
  const std::int64_t room =
      std::max<std::int64_t>(1, resident_clusters(c.size, work.num_sms) / work.row_groups);
  c.count = static_cast<std::int32_t>(std::clamp<std::int64_t>(total / (c.size * kUnitKeys), 1, room));
  return c;
}

Clusters choose_large(const Work& work, std::int32_t size) {
  const auto requests = static_cast<std::int64_t>(work.keys.size());
  Clusters c;
  c.size = size;
  if (requests == 0) return c;
  const std::int64_t units = requests * work.row_groups;
  if (work.splits > 0) {
    const bool counted = units * size * 2 <= kCountersPerPlan;  // a counter for each half of a unit's rows
    c.per_request = counted ? work.splits : 1;
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

bool prefers_large(std::span<const std::int64_t> keys, std::int64_t rows, std::int64_t num_sms) {
  if (rows <= 32 || keys.empty()) return false;  // at least half of its products would be padding
  // Nanoseconds on an H200 (132 multiprocessors) as measured; docs/kernels/cuda-latent-large.md has the points.
  constexpr std::int64_t kSmall = 9'000, kSmallKey = 290;  // 1024 keys of 32 rows
  constexpr std::int64_t kLarge = 17'600, kPart = 1'920, kBlock = 2'400, kPairBlock = 1'880;
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
  const std::int64_t large =
      kLarge + ceil_div(blocks, ranges) * (size == 1 ? kBlock : kPairBlock) + parts * kPart;
  const std::int64_t small = kSmall + total * ceil_div(rows, 32) * kSmallKey / 1024 * 132 / num_sms;
  return large < small;
}

}  // namespace mla::kernels::latent
