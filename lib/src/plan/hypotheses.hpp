// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/log_reader.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {

/// One way in which a log may have come about.
struct Hypothesis {
  EngineRules engine;
  KvFormat format;
  Layout layout;
  int block = 0;
  std::int64_t real_block = 0;  ///< after the engine raised it or the model fixed it
  bool with_mtp = false;
  StateBlocks state_blocks = StateBlocks::kOne;
  std::int64_t batched_tokens = 8192;
  int chunks = 1;  ///< PlanRequest::prefill_chunks
  int cost = 0;    ///< how far from what the log says or engines do by default
  [[nodiscard]] PoolInputs inputs(const ModelConfig& model, const LogReading& log) const;
};
[[nodiscard]] std::string to_text(const Hypothesis& hypothesis);

/// Simplest first. `breadth` 0: only what the log says and defaults; 1: other formats, blocks, versions, prediction
/// layers; 2: other layouts too. Not each of them is possible().
[[nodiscard]] std::vector<Hypothesis> hypotheses(const LogReading& log, const ModelConfig& model,
                                                 int breadth);

/// Whether engine and model agree to it; finds its real block size.
[[nodiscard]] bool possible(Hypothesis& hypothesis, const ModelConfig& model, const LogReading& log);

}  // namespace mla::capacity
