// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/checkpoint.hpp"
#include "plan/runtime.hpp"
#include "plan/weight_padding.hpp"
#include "plan/weight_parts.hpp"

namespace mla::capacity {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

[[noreturn]] void refuse(const std::string& sentence, const std::string& hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, sentence, hint);
}

void in_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) refuse(fmt::format("{} {} is not in {}..{}", what, value, low, high));
}

/// Block sizes that a user may ask for are fewer than those that engines work with: they raise the blocks of recurrent
/// models by themselves, and a log or a case may hold any.
void check_asked_block(const ModelConfig& model, const PlanRequest& request) {
  constexpr int kEntryBlock = 256;  // as cache_parts() takes it
  const int block = request.block;
  const std::span<const int> taken = request.engine.asked_blocks;
  if (block == 0) return;
  if (model.count(AttentionKind::kCompressed) > 0 && block != kEntryBlock) {
    refuse(fmt::format("{} cannot have blocks of {}: the pages of its compressed entries are {} tokens",
                       model.name, block, kEntryBlock),
           fmt::format("leave --block out, or give --block {}", kEntryBlock));
  }
  if (taken.empty() || model.count(AttentionKind::kRecurrent) > 0) return;
  if (std::ranges::find(taken, block) == taken.end()) {
    refuse(fmt::format("{} has no block size {}: its sizes are {}", request.engine.name, block,
                       fmt::join(taken, ", ")));
  }
}

/// What weights and the runtime that is charged leave for the cache on a rank of a stage.
std::int64_t cache_budget(const PlanRequest& request, std::int64_t weights, std::int64_t charged) {
  const double utilization = *request.utilization;
  if (request.engine.budget == Budget::kShareOfFree) {
    const std::int64_t free = request.gpu_memory_bytes - weights - charged;
    return free > 0 ? share_of(utilization, free) : free;
  }
  return share_of(utilization, request.gpu_memory_bytes) - weights - charged;
}

Line absorbed_line(const PlanRequest& request, std::int64_t copies) {
  return {.key = "weights.absorbed",
          .title = "kv_b in 16 bits, for absorbed decoding",
          .value = copies,
          .formula = fmt::format("beside the {} that the checkpoint stores", request.weights.attention.name),
          .source = fmt::format("{} makes it while loading", request.engine.name)};
}

StagePlan weigh_stage(const ModelConfig& model, const PlanRequest& request, const RuntimeBytes& runtime,
                      int index, StageLayers layers, Words words) {
  StagePlan stage;
  stage.layers = layers;
  if (words == Words::kAll || !request.weight_scales.empty()) {
    stage.weights =
        weights_on_rank(model, request.weights, request.layout, index, request.engine, request.with_mtp);
    apply_scales(stage.weights, request.weight_scales);
  } else if (!request.weight_bytes) {
    stage.weights.bytes =
        weight_bytes_on_rank(model, request.weights, request.layout, index, request.engine, request.with_mtp);
  }
  if (!request.weight_bytes) {
    // Made while loading, so no size of a checkpoint scales them.
    const std::int64_t copies =
        absorbed_bytes(model, request.weights, request.layout, index, request.engine, request.with_mtp);
    if (copies > 0) stage.weights.lines.push_back(absorbed_line(request, copies));
    stage.weights.bytes = plus(stage.weights.bytes, copies);
  }
  stage.weight_bytes = request.weight_bytes.value_or(stage.weights.bytes);
  stage.runtime = runtime.lines;
  stage.runtime_bytes = plus(plus(runtime.activations, runtime.graphs), runtime.other);
  stage.charged_bytes = request.engine.runtime_outside_share ? runtime.other : stage.runtime_bytes;
  stage.cache_budget = cache_budget(request, stage.weight_bytes, stage.charged_bytes);
  if (!request.cache_bytes.empty()) {
    const std::size_t at = request.cache_bytes.size() == 1 ? 0 : static_cast<std::size_t>(index);
    stage.cache_budget = request.cache_bytes[at];
  }
  return stage;
}

}  // namespace

void check(const PlanRequest& request) {
  constexpr std::int64_t kMostMemory = std::int64_t{1} << 50;
  in_range("memory of a GPU (bytes)", request.gpu_memory_bytes, 1, kMostMemory);
  in_range("block size", request.block, 0, 1 << 20);
  in_range("context", request.context, 0, kMostTokens);
  in_range("concurrency", request.concurrency, 0, kMostTokens);
  in_range("batched tokens", request.max_batched_tokens, 1, kMostTokens);
  in_range("prefill chunks", request.prefill_chunks, 1, 16);
  in_range("sequences of a batch", request.max_sequences, 1, kMostTokens);
  in_range("drafted tokens", request.speculative_tokens, 0, 1024);
  in_range("micro-batch", request.micro_batch, 1, kMostTokens);
  in_range("sequences of a window", request.window_sequences, 1, kMostTokens);
  for (const auto& bytes :
       {request.weight_bytes, request.runtime.activations, request.runtime.graphs, request.runtime.other}) {
    if (bytes) in_range("bytes given", *bytes, 0, kMostMemory);
  }
  for (const std::int64_t bytes : request.cache_bytes) in_range("cache bytes given", bytes, 0, kMostMemory);
  const std::size_t budgets = request.cache_bytes.size();
  if (budgets > 1 && budgets != static_cast<std::size_t>(request.layout.pp)) {
    refuse(fmt::format("{} cache budgets are given for {} pipeline stage{}", budgets, request.layout.pp,
                       request.layout.pp == 1 ? "" : "s"),
           "give one for all stages, or as many as --pp says");
  }
  const double utilization = request.utilization.value_or(request.engine.utilization);
  if (!(utilization > 0) || utilization > 1) {
    refuse(fmt::format("utilization {} is not above 0 and at most 1", utilization));
  }
}

std::int64_t share_of(double part, std::int64_t whole) {
  return static_cast<std::int64_t>(std::floor(part * static_cast<double>(whole)));
}

std::vector<Stage> plan_stages(const ModelConfig& model, const PlanRequest& request, const PoolInputs& inputs,
                               Words words) {
  const RuntimeBytes runtime = runtime_bytes(model, request);
  const std::vector<StageLayers> ranges = stage_layers(request.layout, model);
  check_asked_block(model, request);
  std::vector<PoolSet> pools = pool_geometries(inputs);
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    Stage stage{.plan = weigh_stage(model, request, runtime, static_cast<int>(i), ranges[i], words),
                .pools = std::move(pools[i])};
    // The graph's share of the context is taken again at each length that is asked about.
    fill(stage.pools, inputs, plus(stage.plan.cache_budget, inputs.scratch.bytes(request.context)),
         request.context);
    stage.plan.sequences = sequences_of(inputs, stage.pools, request.context);
    stages.push_back(std::move(stage));
  }
  return stages;
}

std::size_t limiting_stage(const std::vector<Stage>& stages) {
  const auto fewer = [](const Stage& a, const Stage& b) {
    if (a.plan.sequences != b.plan.sequences) return a.plan.sequences < b.plan.sequences;
    const bool fixed = !a.pools.fluid && !a.pools.pools.empty() && !b.pools.pools.empty();
    return fixed && a.pools.pools.front().blocks < b.pools.pools.front().blocks;
  };
  return static_cast<std::size_t>(std::ranges::min_element(stages, fewer) - stages.begin());
}

std::int64_t longest_of(const PoolInputs& inputs, const std::vector<Stage>& stages, std::int64_t limit) {
  for (const Stage& stage : stages) limit = longest_of(inputs, stage.pools, limit);
  return limit;
}

}  // namespace mla::capacity
