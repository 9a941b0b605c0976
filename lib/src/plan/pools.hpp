// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mla/capacity.hpp"

/// Pools of cache blocks: what a block costs, how many a budget buys, how many a sequence takes.
namespace mla::capacity {

/// Working memory of an engine that grows with the longest sequence: llama.cpp's attention mask.
struct Scratch {
  std::int64_t offset = 0;  ///< below zero: as many bytes are in use for something else at another time
  std::int64_t per_token = 0;
  [[nodiscard]] std::int64_t bytes(std::int64_t context) const;
};

/// Everything that decides the shape of pools, on one rank.
struct PoolInputs {
  const ModelConfig& model;
  const EngineRules& engine;
  KvFormat format;
  Layout layout;
  int block = 0;  ///< 0: default_block()
  std::int64_t max_batched_tokens = 8192;
  int prefill_chunks = 1;
  bool with_mtp = false;
  int speculative_tokens = 0;  ///< as in PlanRequest
  StateBlocks state_blocks = StateBlocks::kOne;
  std::int64_t micro_batch = 512;
  std::int64_t window_sequences = 1;
  Scratch scratch{};

  /// Tokens drafted at a time.
  [[nodiscard]] int drafted() const {
    return speculative_tokens > 0 ? speculative_tokens : with_mtp && model.num_mtp_layers > 0 ? 1 : 0;
  }
  /// Cells that a window layer of llama.cpp holds for sequences of `length` tokens.
  [[nodiscard]] std::int64_t window_cells(std::int64_t window, std::int64_t length) const;
};

/// The pools of one stage with the budget that fills them.
struct PoolSet {
  std::vector<CachePool> pools;
  bool fluid =
      false;  ///< no fixed shares: any pool may take any byte (llama.cpp's contexts, DeepSeek-V4 outside vLLM)
  std::int64_t budget = 0;  ///< scratch not taken yet
  std::int64_t left = 0;    ///< scratch of the context that it was filled for taken
  std::int64_t block = 0;   ///< tokens a block of the full-length layers, after the engine raised it
  std::vector<std::string> warnings;
};

/// The engine's default block size for this model.
[[nodiscard]] MLA_EXPORT int default_block(const ModelConfig& model, const EngineRules& engine);

/// Geometry of a stage's pools; blocks are 0 until filled. Throws kInvalidArgument for a block size the
/// engine refuses.
[[nodiscard]] PoolSet pool_geometry(const PoolInputs& inputs, int stage);

/// Of all stages.
[[nodiscard]] std::vector<PoolSet> pool_geometries(const PoolInputs& inputs);

/// Buys blocks with `budget` bytes (negative counts as 0). `context` is the longest sequence: fluid sets are filled with
/// sequences of it, and some engines split memory by it.
void fill(PoolSet& set, const PoolInputs& inputs, std::int64_t budget, std::int64_t context);

/// Blocks of a pool that one sequence of `length` tokens takes.
[[nodiscard]] std::int64_t sequence_blocks(const PoolInputs& inputs, const CachePool& pool,
                                           std::int64_t length);
/// Bytes of all of them.
[[nodiscard]] std::int64_t sequence_bytes(const PoolInputs& inputs, const PoolSet& set, std::int64_t length);
/// Whole sequences of `length` tokens that a filled set holds.
[[nodiscard]] std::int64_t sequences_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t length);
/// What the engine would log, at a maximum length of `length`.
[[nodiscard]] double concurrency_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t length);
[[nodiscard]] std::int64_t tokens_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t length,
                                     TokenCount count);
/// Longest single sequence, at most `limit` tokens; 0 if not even one token fits.
[[nodiscard]] std::int64_t longest_of(const PoolInputs& inputs, const PoolSet& set, std::int64_t limit);

}  // namespace mla::capacity
