// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "plan/arithmetic.hpp"
#include "plan/block_groups.hpp"

namespace mla::capacity {
namespace {

/// Layers with one block size and one window; the full-length ones come first.
struct Uniform {
  GroupKind kind = GroupKind::kFull;
  std::int64_t block = 0, window = 0;
  std::map<std::int64_t, std::vector<CacheSpec>> by_class;  ///< padded page size -> its layers
  [[nodiscard]] std::size_t tuples() const {
    std::size_t most = 0;
    for (const auto& [page, layers] : by_class) most = std::max(most, layers.size());
    return most;
  }
};

/// Pages of windows and states are padded to the next page size of the compressed layers, so that they can
/// lie in the same memory.
std::int64_t padded(std::int64_t page, const std::vector<std::int64_t>& classes) {
  const auto larger =
      std::find_if(classes.begin(), classes.end(), [&](std::int64_t candidate) { return candidate >= page; });
  return larger != classes.end() ? *larger : page;
}

std::vector<Uniform> uniforms_of(const std::vector<CacheSpec>& specs) {
  std::vector<std::int64_t> classes;
  for (const CacheSpec& spec : specs) {
    if (spec.kind == GroupKind::kFull) classes.push_back(spec.page_bytes);
  }
  std::sort(classes.begin(), classes.end());
  std::vector<Uniform> uniforms;
  for (const CacheSpec& spec : specs) {
    auto same = std::find_if(uniforms.begin(), uniforms.end(), [&](const Uniform& one) {
      return std::tuple(one.kind, one.block, one.window) == std::tuple(spec.kind, spec.block, spec.window);
    });
    if (same == uniforms.end()) {
      uniforms.push_back({.kind = spec.kind, .block = spec.block, .window = spec.window, .by_class = {}});
      same = uniforms.end() - 1;
    }
    same->by_class[padded(spec.page_bytes, classes)].push_back(spec);
  }
  std::stable_sort(uniforms.begin(), uniforms.end(), [](const Uniform& a, const Uniform& b) {
    return a.kind == GroupKind::kFull && b.kind != GroupKind::kFull;
  });
  return uniforms;
}

/// Layers a group takes of one class: the number, from what the full-length group has upwards, that leaves
/// the fewest places empty.
std::size_t group_size(const std::vector<Uniform>& uniforms) {
  std::size_t most = 1;
  for (const Uniform& one : uniforms) most = std::max(most, one.tuples());
  const std::size_t least = std::max<std::size_t>(1, uniforms.front().tuples());
  std::size_t best = least;
  std::size_t fewest = static_cast<std::size_t>(-1);
  for (std::size_t size = least; size <= most; ++size) {
    std::size_t empty = 0;
    for (const Uniform& one : uniforms) empty += (one.tuples() + size - 1) / size * size - one.tuples();
    if (empty < fewest) {
      fewest = empty;
      best = size;
    }
  }
  return best;
}

}  // namespace

CachePool entry_pool(const std::vector<CacheSpec>& specs, const PoolInputs& inputs, int stage) {
  CachePool pool;
  pool.name = "cache";
  const std::vector<Uniform> uniforms = uniforms_of(specs);
  const std::size_t size = group_size(uniforms);
  std::map<std::int64_t, std::int64_t> slots;  // most layers of a class that one group has on the stage
  for (const Uniform& one : uniforms) {
    const std::size_t groups =
        one.kind == GroupKind::kFull ? 1 : std::max<std::size_t>(1, (one.tuples() + size - 1) / size);
    for (std::size_t i = 0; i < groups; ++i) {
      CacheGroup group{.kind = one.kind, .block = one.block, .window = one.window};
      if (i + 1 == groups) group.padding_layers = static_cast<int>(groups * size - one.tuples());
      for (const auto& [page, layers] : one.by_class) {
        std::int64_t here = 0;
        for (std::size_t j = i; j < layers.size(); j += groups) {
          if (layers[j].stage != stage) continue;
          ++here;
          group.block_bytes = plus(group.block_bytes, layers[j].page_bytes);
        }
        group.layers += static_cast<int>(here);
        slots[page] = std::max(slots[page], here);
      }
      pool.groups.push_back(group);
    }
  }
  std::int64_t most = 0;
  for (const auto& [page, count] : slots) most = std::max(most, count);
  for (const auto& [page, count] : slots) {
    const std::int64_t places = inputs.engine.entry_pages == EntryPages::kTuples ? most : count;
    pool.block_bytes = plus(pool.block_bytes, times(page, places));
  }
  return pool;
}

}  // namespace mla::capacity
