// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/checkpoint.hpp"
#include "plan/plan_lines.hpp"
#include "plan/plan_request.hpp"
#include "plan/plan_warnings.hpp"
#include "plan/pools.hpp"
#include "plan/runtime.hpp"

namespace mla::capacity {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

[[noreturn]] void refuse(const std::string& sentence, const std::string& hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, sentence, hint);
}

void in_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) refuse(fmt::format("{} {} is not in {}..{}", what, value, low, high));
}

void check(const PlanRequest& request) {
  constexpr std::int64_t kMostMemory = std::int64_t{1} << 50;
  in_range("memory of a GPU (bytes)", request.gpu_memory_bytes, 1, kMostMemory);
  in_range("block size", request.block, 0, 1 << 20);
  in_range("context", request.context, 0, kMostTokens);
  in_range("concurrency", request.concurrency, 0, kMostTokens);
  in_range("batched tokens", request.max_batched_tokens, 1, kMostTokens);
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
    refuse(fmt::format("{} cache budgets are given for {} pipeline stages", budgets, request.layout.pp));
  }
  const double utilization = request.utilization.value_or(request.engine.utilization);
  if (!(utilization > 0) || utilization > 1) {
    refuse(fmt::format("utilization {} is not above 0 and at most 1", utilization));
  }
}

std::int64_t share(double part, std::int64_t whole) {
  return static_cast<std::int64_t>(std::floor(part * static_cast<double>(whole)));
}

/// What weights and runtime leave for the cache on a rank of a stage.
std::int64_t cache_budget(const PlanRequest& request, std::int64_t weights, const RuntimeBytes& runtime) {
  const double utilization = *request.utilization;
  const std::int64_t inside = request.engine.runtime_outside_share
                                  ? runtime.other
                                  : plus(plus(runtime.activations, runtime.graphs), runtime.other);
  if (request.engine.budget == Budget::kShareOfFree) {
    const std::int64_t free = request.gpu_memory_bytes - weights - inside;
    return free > 0 ? share(utilization, free) : free;
  }
  return share(utilization, request.gpu_memory_bytes) - weights - inside;
}

struct Stage {
  StagePlan plan;
  PoolSet pools;
};

Stage plan_stage(const ModelConfig& model, const PlanRequest& request, const PoolInputs& inputs, int index,
                 StageLayers layers) {
  Stage stage;
  stage.plan.layers = layers;
  stage.plan.weights =
      weights_on_rank(model, request.weights, request.layout, index, request.engine, request.with_mtp);
  apply_scales(stage.plan.weights, request.weight_scales);
  stage.plan.weight_bytes = request.weight_bytes.value_or(stage.plan.weights.bytes);
  const RuntimeBytes runtime = runtime_bytes(model, request);
  stage.plan.runtime = runtime.lines;
  stage.plan.runtime_bytes = plus(plus(runtime.activations, runtime.graphs), runtime.other);
  stage.plan.cache_budget = cache_budget(request, stage.plan.weight_bytes, runtime);
  if (!request.cache_bytes.empty()) {
    const std::size_t at = request.cache_bytes.size() == 1 ? 0 : static_cast<std::size_t>(index);
    stage.plan.cache_budget = request.cache_bytes[at];
  }
  stage.pools = pool_geometry(inputs, index);
  fill(stage.pools, inputs, stage.plan.cache_budget, request.context);
  stage.plan.sequences = sequences_of(inputs, stage.pools, request.context);
  return stage;
}

/// Index of the stage with the fewest blocks (fluid pools: sequences): it decides for all.
std::size_t limiting_stage(const std::vector<Stage>& stages) {
  std::size_t limiting = 0;
  for (std::size_t i = 1; i < stages.size(); ++i) {
    const PoolSet& a = stages[i].pools;
    const PoolSet& b = stages[limiting].pools;
    const bool fewer = a.fluid || a.pools.empty() || b.pools.empty()
                           ? stages[i].plan.sequences < stages[limiting].plan.sequences
                           : a.pools.front().blocks < b.pools.front().blocks;
    if (fewer) limiting = i;
  }
  return limiting;
}

Binding binding_of(const MemoryPlan& plan, const PlanRequest& request) {
  for (const StagePlan& stage : plan.stages) {
    if (stage.cache_budget <= 0) return Binding::kWeights;
  }
  if (plan.sequences == 0) return Binding::kSequence;
  if (request.concurrency > 0 && plan.sequences >= request.concurrency) return Binding::kNothing;
  return Binding::kCache;
}

}  // namespace

std::string_view name_of(Binding binding) noexcept {
  switch (binding) {
    case Binding::kNothing:
      return "nothing";
    case Binding::kWeights:
      return "weights";
    case Binding::kSequence:
      return "one sequence";
    case Binding::kCache:
      return "KV cache";
  }
  return "?";
}

bool possible(const Layout& layout, const ModelConfig& model) {
  try {
    validate(layout, model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

PlanRequest completed(const ModelConfig& model, PlanRequest request) {
  if (request.context == 0) request.context = std::max<std::int64_t>(1, model.max_position);
  if (request.cache.name == "fp8" && model.mla && model.indexer && request.engine.sparse_fp8 != "fp8") {
    request.cache = find_kv_format(request.engine.sparse_fp8);
  }
  if (!request.utilization) request.utilization = request.engine.utilization;
  return request;
}

PoolInputs pool_inputs(const ModelConfig& model, const PlanRequest& request) {
  return {.model = model,
          .engine = request.engine,
          .format = request.cache,
          .layout = request.layout,
          .block = request.block,
          .max_batched_tokens = request.max_batched_tokens,
          .with_mtp = request.with_mtp,
          .speculative_tokens = request.speculative_tokens,
          .state_blocks = request.state_blocks,
          .micro_batch = request.micro_batch,
          .window_sequences = request.window_sequences};
}

MemoryPlan plan_memory(const ModelConfig& model, const PlanRequest& asked) {
  check(asked);
  validate(asked.layout, model);
  const PlanRequest request = completed(model, asked);
  const PoolInputs inputs = pool_inputs(model, request);
  std::vector<Stage> stages;
  const std::vector<StageLayers> ranges = stage_layers(request.layout, model);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    stages.push_back(plan_stage(model, request, inputs, static_cast<int>(i), ranges[i]));
  }
  const std::size_t limiting = limiting_stage(stages);
  const PoolSet& pools = stages[limiting].pools;
  if (pools.pools.empty()) {
    refuse(fmt::format("{} has no layer that keeps a cache: there is nothing to plan", model.name));
  }

  MemoryPlan plan;
  plan.layout = request.layout;
  plan.gpu_memory_bytes = request.gpu_memory_bytes;
  plan.budget_bytes = share(*request.utilization, request.gpu_memory_bytes);
  plan.context = request.context;
  plan.block = static_cast<int>(pools.block);
  plan.limiting_stage = static_cast<int>(limiting);
  plan.bytes_per_sequence = sequence_bytes(inputs, pools, request.context);
  plan.blocks = pools.pools.empty() ? 0 : pools.pools.front().blocks;
  plan.tokens_by_blocks = tokens_of(inputs, pools, request.context, TokenCount::kBlocks);
  plan.tokens_by_concurrency = tokens_of(inputs, pools, request.context, TokenCount::kConcurrency);
  plan.tokens_logged =
      request.engine.token_count == TokenCount::kBlocks ? plan.tokens_by_blocks : plan.tokens_by_concurrency;
  plan.concurrency_logged = concurrency_of(inputs, pools, request.context);
  plan.sequences_per_replica = stages[limiting].plan.sequences;
  plan.replicas = request.layout.dp;
  plan.sequences = times(plan.sequences_per_replica, plan.replicas);
  plan.longest_context = longest_of(inputs, pools, std::max(request.context, model.max_position));
  for (Stage& stage : stages) {
    stage.plan.pools = stage.pools.pools;
    plan.stages.push_back(std::move(stage.plan));
  }
  plan.binding = binding_of(plan, request);
  plan.fits = plan.sequences >= std::max<std::int64_t>(1, request.concurrency);
  const CacheCost cost = cache_cost(model_of_stage(model, request.layout, plan.limiting_stage), request.cache,
                                    request.engine, request.layout.tp, request.with_mtp);
  plan.cache_bytes_per_token = growing_bytes(cost, request.engine, request.layout);
  plan.lines = plan_lines(request, inputs, plan, cost);
  plan.warnings = plan_warnings(model, request, plan);
  plan.warnings.insert(plan.warnings.end(), pools.warnings.begin(), pools.warnings.end());
  return plan;
}

}  // namespace mla::capacity
