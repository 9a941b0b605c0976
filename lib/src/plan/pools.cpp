// SPDX-License-Identifier: Apache-2.0
#include "plan/pools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/block_groups.hpp"
#include "plan/layer_parts.hpp"

namespace mla::capacity {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::int64_t kCellPadding = 256;

GroupKind group_kind(const CachePart& part) {
  if (part.kind == PartKind::kState) return GroupKind::kState;
  return part.window > 0 ? GroupKind::kWindow : GroupKind::kFull;
}

/// What drafted tokens add to a recurrent state in vLLM: a column of the short convolution each.
std::int64_t drafted_bytes(const PoolInputs& inputs) {
  if (inputs.engine.pools != PoolKind::kSharedBlocks || !inputs.model.recurrent) return 0;
  const RecurrentConfig& config = *inputs.model.recurrent;
  if (config.conv_kernel < 2) return 0;
  const std::int64_t column = std::int64_t{config.conv_channels} * config.conv_element_bytes;
  return times(inputs.drafted(), ceil_div(column, inputs.layout.tp));
}

/// Bytes of one page of a part. Ranks that keep whole index keys while they share the rest need dcp times as
/// many.
std::int64_t page_of(const CachePart& part, std::int64_t block, const PoolInputs& inputs) {
  if (part.kind == PartKind::kState) return plus(part.k_bytes, drafted_bytes(inputs));
  std::int64_t tokens = block;
  if (part.kind == PartKind::kIndex && inputs.engine.index_whole_under_dcp)
    tokens = times(tokens, inputs.layout.dcp);
  return round_up(times(ceil_div(tokens, part.tokens_per_entry), part.entry_bytes()), part.page_alignment);
}

/// Every cache tensor of the model with the stage that holds it. With `fold_index`, index keys lie in their
/// layer's page.
std::vector<CacheSpec> specs_of(const PoolInputs& inputs, std::int64_t block, bool fold_index) {
  const std::vector<StageLayers> stages = stage_layers(inputs.layout, inputs.model);
  const auto stage_of = [&](const LayerCache& layer) {
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (!layer.mtp && layer.model_layer < stages[i].first + stages[i].count) return static_cast<int>(i);
    }
    return static_cast<int>(stages.size()) - 1;
  };
  std::vector<CacheSpec> specs;
  LayerParts parts(inputs.model, inputs.format, inputs.engine, inputs.layout.tp);
  for (const LayerCache& layer : inputs.model.layers) {
    if (layer.mtp && !inputs.with_mtp) continue;
    for (const CachePart& part : parts.of(layer)) {
      const std::int64_t tokens = part.block > 0 ? part.block : block;
      if (fold_index && part.kind == PartKind::kIndex) {
        specs.back().page_bytes = plus(specs.back().page_bytes, page_of(part, tokens, inputs));
        continue;
      }
      specs.push_back({.kind = group_kind(part),
                       .stage = stage_of(layer),
                       .block = part.kind == PartKind::kState ? 0 : tokens,
                       .page_bytes = page_of(part, tokens, inputs),
                       .window = part.window,
                       .chunked = part.chunked});
    }
  }
  return specs;
}

/// Full-length layers of one block size, or windows of one size: one group, pages as they come.
CachePool uniform_pool(const std::vector<CacheSpec>& specs, int stage, std::string name) {
  CachePool pool;
  pool.name = std::move(name);
  CacheGroup group{.kind = specs.front().kind,
                   .block = specs.front().block,
                   .window = specs.front().window,
                   .chunked = specs.front().chunked};
  bool equal = true;
  for (const CacheSpec& spec : specs) {
    equal = equal && spec.page_bytes == specs.front().page_bytes;
    if (spec.stage != stage) continue;
    ++group.layers;
    pool.block_bytes = plus(pool.block_bytes, spec.page_bytes);
  }
  group.block_bytes = pool.block_bytes;
  if (equal) pool.page_bytes = specs.front().page_bytes;
  pool.groups.push_back(group);
  return pool;
}

/// One pool for each kind, block size and window.
void add_pools_by_kind(PoolSet& set, const std::vector<CacheSpec>& specs, int stage) {
  std::vector<std::vector<CacheSpec>> kinds;
  for (const CacheSpec& spec : specs) {
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const std::vector<CacheSpec>& kind) {
      const CacheSpec& other = kind.front();
      return other.kind == spec.kind && other.block == spec.block && other.window == spec.window;
    });
    if (same != kinds.end()) {
      same->push_back(spec);
    } else {
      kinds.push_back({spec});
    }
  }
  for (const auto& kind : kinds) {
    constexpr const char* kNames[] = {"full", "window", "state"};
    set.pools.push_back(uniform_pool(kind, stage, kNames[static_cast<int>(kind.front().kind)]));
  }
}

void check_block(const PoolInputs& inputs, int block) {
  const EngineRules& engine = inputs.engine;
  if (engine.power_of_two_blocks && (block & (block - 1)) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} refuses block size {}: it must be a power of two", engine.name, block));
  }
  const bool named = std::ranges::find(engine.asked_blocks, block) != engine.asked_blocks.end();
  if (block % engine.block_step != 0 && !named) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} refuses block size {}: it must be a multiple of {}", engine.name, block,
                            engine.block_step));
  }
  if (engine.sparse_block > 0 && inputs.model.indexer && inputs.model.mla && block != engine.sparse_block) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} takes block size {} only for top-k sparse models such as {}, not {}",
                            engine.name, engine.sparse_block, inputs.model.name, block));
  }
}

bool has_compressed(const ModelConfig& model) {
  return model.count(AttentionKind::kCompressed) > 0;
}

/// Tokens of one sequence that a group holds on this rank.
std::int64_t tokens_held(const PoolInputs& inputs, const CacheGroup& group, std::int64_t length) {
  if (group.kind == GroupKind::kFull) return ceil_div(length, inputs.layout.dcp);
  switch (inputs.engine.window) {
    case WindowRule::kFullLength:
      return length;
    case WindowRule::kExact:
      return std::min(group.window, length);
    case WindowRule::kWithChunk:
      return std::min(plus(group.window - (group.chunked ? 0 : 1),
                           times(inputs.prefill_chunks, inputs.max_batched_tokens)),
                      length);
    case WindowRule::kWithBatch:
      return inputs.window_cells(group.window, length);
  }
  return length;
}

/// Blocks of recurrent layers: the state, its copies at block boundaries, and one for every drafted token.
std::int64_t state_blocks(const PoolInputs& inputs, const CacheGroup& group, std::int64_t length) {
  if (inputs.engine.pools != PoolKind::kSharedBlocks) return 1;
  switch (inputs.state_blocks) {
    case StateBlocks::kOne:
      return 1 + inputs.drafted();
    case StateBlocks::kAligned:
      return 2 + inputs.drafted();
    case StateBlocks::kAll:
      return std::max<std::int64_t>(1, ceil_div(length, std::max<std::int64_t>(1, group.block))) +
             inputs.drafted();
  }
  return 1;
}

std::int64_t group_blocks(const PoolInputs& inputs, const CacheGroup& group, std::int64_t length) {
  if (group.kind == GroupKind::kState) return state_blocks(inputs, group, length);
  const std::int64_t blocks = ceil_div(tokens_held(inputs, group, length), group.block);
  // A window may start in the middle of a block, so it can touch one more than its length needs.
  const bool one_more =
      group.kind == GroupKind::kWindow && !group.chunked && inputs.engine.window == WindowRule::kWithChunk;
  return blocks + (one_more ? 1 : 0);
}

std::int64_t buy(const PoolInputs& inputs, const CachePool& pool, std::int64_t budget) {
  if (pool.block_bytes == 0) return kUnlimited;
  return inputs.engine.round_blocks_up ? ceil_div(budget, pool.block_bytes) : budget / pool.block_bytes;
}

void set_blocks(const PoolInputs& inputs, CachePool& pool, std::int64_t blocks) {
  pool.blocks = blocks;
  pool.usable = std::max<std::int64_t>(0, blocks - inputs.engine.reserved_blocks);
}

/// Tokens that a pool gets for each of the full pool.
double token_share(const PoolInputs& inputs, const CacheGroup& group, std::int64_t context) {
  if (group.kind != GroupKind::kWindow) return 1.0;
  if (inputs.engine.pool_share == PoolShare::kTokens) return inputs.engine.window_pool_ratio;
  return static_cast<double>(std::min(group.window, context)) /
         static_cast<double>(std::max<std::int64_t>(1, context));
}

/// States take their share first, then full and window layers get tokens in fixed proportion.
void fill_by_kind(PoolSet& set, const PoolInputs& inputs, std::int64_t budget, std::int64_t context) {
  bool states = false;
  double token_bytes = 0;
  for (const CachePool& pool : set.pools) {
    const CacheGroup& group = pool.groups.front();
    if (group.kind == GroupKind::kState) {
      states = true;
      continue;
    }
    token_bytes += token_share(inputs, group, context) * static_cast<double>(pool.block_bytes) /
                   static_cast<double>(group.block);
  }
  const double ratio = inputs.engine.state_pool_ratio;
  const double state_share = !states ? 0 : token_bytes == 0 ? 1 : ratio / (1 + ratio);
  const auto bytes = static_cast<double>(budget);
  const bool one_pool = set.pools.size() == 1;
  for (CachePool& pool : set.pools) {
    const CacheGroup& group = pool.groups.front();
    if (one_pool) {
      set_blocks(inputs, pool, buy(inputs, pool, budget));
    } else if (group.kind == GroupKind::kState) {
      set_blocks(inputs, pool, buy(inputs, pool, static_cast<std::int64_t>(bytes * state_share)));
    } else {
      const double share = token_share(inputs, group, context);
      const double tokens = token_bytes > 0 ? share * bytes * (1 - state_share) / token_bytes : 0;
      const auto whole = static_cast<std::int64_t>(tokens);
      set_blocks(inputs, pool,
                 inputs.engine.round_blocks_up ? ceil_div(whole, group.block) : whole / group.block);
    }
  }
}

}  // namespace

std::int64_t Scratch::bytes(std::int64_t context) const {
  return std::max<std::int64_t>(0, plus(offset, times(per_token, context)));
}

std::int64_t PoolInputs::window_cells(std::int64_t window, std::int64_t length) const {
  return round_up(std::min(plus(times(window, window_sequences), micro_batch), length), kCellPadding);
}

int default_block(const ModelConfig& model, const EngineRules& engine) {
  if (!caches_latent(model, engine)) return engine.block;
  return model.indexer && engine.sparse_block > 0 ? engine.sparse_block : engine.mla_block;
}

namespace {

PoolSet geometry_of(const PoolInputs& inputs, const std::vector<CacheSpec>& specs, int block, int stage) {
  PoolSet set;
  set.block = block;
  if (specs.empty()) return set;
  const bool uniform = std::all_of(specs.begin(), specs.end(), [&](const CacheSpec& spec) {
    const CacheSpec& one = specs.front();
    return spec.kind == one.kind && spec.block == one.block && spec.window == one.window;
  });
  const bool states = std::any_of(specs.begin(), specs.end(),
                                  [](const CacheSpec& spec) { return spec.kind == GroupKind::kState; });
  const bool no_share_for_states =
      inputs.engine.pools == PoolKind::kPoolPerKind && states && inputs.engine.state_pool_ratio == 0;
  const bool entries = has_compressed(inputs.model);
  const bool entry_groups = entries && inputs.engine.pools == PoolKind::kSharedBlocks &&
                            inputs.engine.entry_pages != EntryPages::kByKind;
  set.fluid = inputs.engine.pools == PoolKind::kCells || (entries && !entry_groups) || no_share_for_states;
  if (entry_groups) {
    set.pools.push_back(entry_pool(specs, inputs, stage));
  } else if (set.fluid || inputs.engine.pools == PoolKind::kPoolPerKind) {
    add_pools_by_kind(set, specs, stage);
  } else if (uniform) {
    set.pools.push_back(uniform_pool(specs, stage, "cache"));
  } else {
    set.pools.push_back(grouped_pool(specs_of(inputs, block, true), inputs, stage, set));
  }
  std::int64_t least = 0;  // blocks of full-length layers, where a cache has several
  for (const CachePool& pool : set.pools) {
    for (const CacheGroup& group : pool.groups) {
      if (group.kind == GroupKind::kFull && (least == 0 || group.block < least)) least = group.block;
    }
  }
  if (least > 0) set.block = least;
  return set;
}

/// What is left of the budget for sequences of a length.
std::int64_t left_for(const PoolInputs& inputs, const PoolSet& set, std::int64_t length) {
  return std::max<std::int64_t>(0, set.budget - inputs.scratch.bytes(length));
}

int checked_block(const PoolInputs& inputs) {
  const int block = inputs.block > 0 ? inputs.block : default_block(inputs.model, inputs.engine);
  check_block(inputs, block);
  return block;
}

}  // namespace

PoolSet pool_geometry(const PoolInputs& inputs, int stage) {
  const int block = checked_block(inputs);
  return geometry_of(inputs, specs_of(inputs, block, false), block, stage);
}

std::vector<PoolSet> pool_geometries(const PoolInputs& inputs) {
  const int block = checked_block(inputs);
  const std::vector<CacheSpec> specs = specs_of(inputs, block, false);
  std::vector<PoolSet> sets;
  for (int stage = 0; stage < inputs.layout.pp; ++stage) {
    sets.push_back(geometry_of(inputs, specs, block, stage));
  }
  return sets;
}

void fill(PoolSet& set, const PoolInputs& inputs, std::int64_t budget, std::int64_t context) {
  set.budget = std::max<std::int64_t>(0, budget);
  set.left = left_for(inputs, set, context);
  if (set.fluid) {
    const std::int64_t sequences = sequences_of(inputs, set, context);
    for (CachePool& pool : set.pools) {
      set_blocks(inputs, pool, times(sequences, sequence_blocks(inputs, pool, context)));
    }
  } else if (inputs.engine.pools == PoolKind::kPoolPerKind) {
    fill_by_kind(set, inputs, set.budget, context);
  } else {
    for (CachePool& pool : set.pools) set_blocks(inputs, pool, buy(inputs, pool, set.budget));
  }
}

std::int64_t sequence_blocks(const PoolInputs& inputs, const CachePool& pool, std::int64_t length) {
  std::int64_t blocks = 0;
  for (const CacheGroup& group : pool.groups) blocks = plus(blocks, group_blocks(inputs, group, length));
  return blocks;
}

std::int64_t sequence_bytes(const PoolInputs& inputs, const PoolSet& set, std::int64_t length) {
  std::int64_t bytes = 0;
  for (const CachePool& pool : set.pools) {
    bytes = plus(bytes, times(pool.block_bytes, sequence_blocks(inputs, pool, length)));
  }
  return bytes;
}

std::int64_t sequences_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t length) {
  if (set.fluid) {
    const std::int64_t bytes = sequence_bytes(inputs, set, length);
    return bytes == 0 ? kUnlimited : left_for(inputs, set, length) / bytes;
  }
  std::int64_t sequences = kUnlimited;
  for (const CachePool& pool : set.pools) {
    const std::int64_t blocks = sequence_blocks(inputs, pool, length);
    if (blocks > 0) sequences = std::min(sequences, pool.usable / blocks);
  }
  return sequences;
}

double concurrency_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t length) {
  double concurrency = -1;
  if (set.fluid) {
    const std::int64_t bytes = sequence_bytes(inputs, set, length);
    return bytes == 0 ? 0 : static_cast<double>(left_for(inputs, set, length)) / static_cast<double>(bytes);
  }
  for (const CachePool& pool : set.pools) {
    const std::int64_t blocks = sequence_blocks(inputs, pool, length);
    if (blocks == 0) continue;
    const double times_over = static_cast<double>(pool.blocks) / static_cast<double>(blocks);
    concurrency = concurrency < 0 ? times_over : std::min(concurrency, times_over);
  }
  return std::max(concurrency, 0.0);
}

std::int64_t tokens_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t length, TokenCount count) {
  if (set.pools.empty()) return 0;
  if (inputs.engine.pools ==
      PoolKind::kCells) {  // a context is of whole sequences, each of whole blocks of cells
    const std::int64_t sequences = sequences_of(inputs, set, length);
    return sequences == kUnlimited ? kUnlimited : times(sequences, round_up(length, kCellPadding));
  }
  if (set.fluid || count == TokenCount::kConcurrency) {
    const double tokens = concurrency_of(inputs, set, length) * static_cast<double>(length);
    return tokens < static_cast<double>(kUnlimited) ? static_cast<std::int64_t>(tokens) : kUnlimited;
  }
  const auto full = std::find_if(set.pools.begin(), set.pools.end(), [](const CachePool& candidate) {
    return candidate.groups.front().kind == GroupKind::kFull;
  });
  const CachePool& pool = full != set.pools.end() ? *full : set.pools.front();
  std::int64_t smallest = kUnlimited;
  for (const CacheGroup& group : pool.groups) {
    if (group.kind != GroupKind::kState) smallest = std::min(smallest, group.block);
  }
  if (smallest == kUnlimited) return 0;
  const std::int64_t per_group = pool.blocks / static_cast<std::int64_t>(pool.groups.size());
  return times(times(per_group, smallest), inputs.layout.dcp);
}

std::int64_t longest_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t limit) {
  std::int64_t low = 0;
  std::int64_t high = limit;
  while (low < high) {  // largest length in [low, high] of which one fits
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (sequences_of(inputs, set, middle) >= 1) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace mla::capacity
