// SPDX-License-Identifier: Apache-2.0
#include "plan/block_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

auto type_of(const CacheSpec& spec) {
  return std::tuple(spec.kind, spec.block, spec.page_bytes, spec.window, spec.chunked);
}

/// A page must hold a recurrent state: blocks of attention layers grow in steps until theirs does.
void raise_for_states(std::vector<CacheSpec>& specs, const PoolInputs& inputs, CachePool& pool) {
  std::int64_t state = 0;
  for (const CacheSpec& spec : specs) {
    if (spec.kind == GroupKind::kState) state = std::max(state, spec.page_bytes);
  }
  const auto full = std::find_if(specs.begin(), specs.end(),
                                 [](const CacheSpec& spec) { return spec.kind == GroupKind::kFull; });
  if (state == 0 || full == specs.end()) return;
  const std::int64_t token_bytes = std::max<std::int64_t>(1, full->page_bytes / full->block);
  const std::int64_t step = caches_latent(inputs.model, inputs.engine) ? inputs.engine.mla_block_alignment
                                                                       : inputs.engine.block_alignment;
  const std::int64_t wanted = times(step, ceil_div(state, times(step, token_bytes)));
  const std::int64_t block = std::max(full->block, wanted);
  for (CacheSpec& spec : specs) {
    if (spec.kind == GroupKind::kState) {
      if (inputs.state_blocks == StateBlocks::kAll) spec.block = block;
      continue;
    }
    spec.page_bytes = times(spec.page_bytes / spec.block, block);
    spec.block = block;
  }
  pool.padding_bytes = times(token_bytes, block) - state;
}

/// All pages become as large as the largest: by more tokens a block where that works out, else by padding.
void equalise_pages(std::vector<CacheSpec>& specs, const PoolInputs& inputs, CachePool& pool, PoolSet& set) {
  for (const CacheSpec& spec : specs) pool.page_bytes = std::max(pool.page_bytes, spec.page_bytes);
  bool padded = false;
  for (CacheSpec& spec : specs) {
    if (spec.kind != GroupKind::kState && spec.page_bytes > 0) {
      padded = padded || pool.page_bytes % spec.page_bytes != 0;
      spec.block = times(spec.block, pool.page_bytes / spec.page_bytes);
    }
    spec.page_bytes = pool.page_bytes;
  }
  if (padded) {
    set.warnings.push_back(fmt::format(
        "the layers' pages do not divide each other: {} refuses such a model or pads pages; padding is "
        "assumed",
        inputs.engine.name));
  }
}

}  // namespace

CachePool grouped_pool(std::vector<CacheSpec> specs, const PoolInputs& inputs, int stage, PoolSet& set) {
  CachePool pool;
  pool.name = "cache";
  raise_for_states(specs, inputs, pool);
  equalise_pages(specs, inputs, pool, set);

  // Layers of one type, in order of first appearance.
  std::vector<std::vector<CacheSpec>> types;
  for (const CacheSpec& spec : specs) {
    const auto same = std::find_if(types.begin(), types.end(), [&](const std::vector<CacheSpec>& type) {
      return type_of(type.front()) == type_of(spec);
    });
    if (same != types.end()) {
      same->push_back(spec);
    } else {
      types.push_back({spec});
    }
  }
  std::size_t smallest = specs.size();
  std::size_t largest = 0;
  for (const auto& type : types) {
    smallest = std::min(smallest, type.size());
    largest = std::max(largest, type.size());
  }
  const bool pad_up =
      static_cast<double>(largest) < static_cast<double>(smallest) * inputs.engine.group_padding_limit;
  const std::size_t size = pad_up ? largest : smallest;
  int most_layers = 0;
  for (const auto& type : types) {
    const std::size_t groups = (type.size() + size - 1) / size;
    const std::size_t padding = groups * size - type.size();
    for (std::size_t i = 0; i < groups; ++i) {
      CacheGroup group{.kind = type.front().kind,
                       .padding_layers = i + 1 == groups ? static_cast<int>(padding) : 0,
                       .block = type.front().block,
                       .window = type.front().window,
                       .chunked = type.front().chunked};
      for (std::size_t j = i; j < type.size(); j += groups) group.layers += type[j].stage == stage ? 1 : 0;
      group.block_bytes = times(pool.page_bytes, group.layers);
      most_layers = std::max(most_layers, group.layers);
      pool.groups.push_back(group);
    }
  }
  pool.block_bytes = times(pool.page_bytes, most_layers);
  return pool;
}

}  // namespace mla::capacity
