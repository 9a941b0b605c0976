// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mla/capacity.hpp"

/// What a sliding window, sink tokens or a top-k index save. Reading less and storing less are two things: an index over a full
/// cache frees no byte; only an allocator that drops what left the window (a ring) does.
namespace mla::capacity {

struct SavingsRequest {
  std::int64_t context = 0;  ///< tokens of one sequence
  std::int64_t window = 0;   ///< for layers that attend to everything; 0: they keep doing so
  std::int64_t sink = 0;     ///< first tokens kept beside that window
  int block = 64;
  KvFormat format;
  EngineRules engine;
};

/// Layers that read and store alike. Numbers of bytes are for all of them and one sequence.
struct LayerSavings {
  std::string what;  ///< "window 4,096 + 128 sinks"
  int layers = 0;
  std::int64_t tokens_read = 0, blocks_read = 0;  ///< a decode step, one layer
  std::int64_t ring_tokens = 0;                   ///< a ring cache stores, one layer, whole blocks
  double read_bytes = 0, full_read_bytes = 0;     ///< a decode step; without window or index
  double full_bytes = 0, ring_bytes = 0;          ///< stored: every token; only what can still be read
};

struct Savings {
  std::int64_t context = 0;
  std::vector<LayerSavings> layers;
  double read_bytes = 0, full_read_bytes = 0, full_bytes = 0, ring_bytes = 0;  ///< sums, states included
  /// What the engine itself charges one sequence on one GPU, as plan does: it knows the config's windows, not one that
  /// the request imposes. 0 where it takes no such blocks.
  std::int64_t engine_bytes = 0;
  std::vector<Line> lines;
};

/// Throws kInvalidArgument for a window on a model that picks its keys by an index, for sinks without a window, and for models
/// with compressed entries, whose cache is both already.
[[nodiscard]] MLA_EXPORT Savings plan_savings(const ModelConfig& model, const SavingsRequest& request);

}  // namespace mla::capacity
