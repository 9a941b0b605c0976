// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/plan_lines.hpp"
#include "plan/plan_request.hpp"
#include "plan/plan_warnings.hpp"
#include "plan/pools.hpp"
#include "plan/runtime.hpp"
#include "plan/stages.hpp"

namespace mla::capacity {
namespace {

Binding binding_of(const MemoryPlan& plan, const PlanRequest& request) {
  const bool weighed = request.cache_bytes.empty();  // else the budget was given, whatever the weights are
  for (const StagePlan& stage : plan.stages) {
    if (weighed && stage.cache_budget <= 0) return Binding::kWeights;
  }
  if (plan.sequences == 0) return Binding::kSequence;
  if (request.concurrency > 0 && plan.at_once >= request.concurrency) return Binding::kNothing;
  if (request.concurrency > 0 && plan.sequences >= request.concurrency) return Binding::kBatch;
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
    case Binding::kBatch:
      return "max_num_seqs";
  }
  return "?";
}

bool possible(const Layout& layout, const ModelConfig& model, const EngineRules& engine) {
  try {
    validate(layout, model, engine);
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

BatchLimit batch_limit(const PlanRequest& request) {
  const EngineRules& engine = request.engine;
  // What is kept off the GPU does not run, and cells are given for as many as will run.
  if (engine.off_gpu) return {std::numeric_limits<std::int64_t>::max(), {}};
  if (engine.most_sequences > 0) return {engine.most_sequences, "LLAMA_MAX_SEQ"};
  return {request.max_sequences, "--max-seqs"};
}

std::int64_t run_at_once(const PlanRequest& request, std::int64_t sequences) {
  return std::min(sequences, batch_limit(request).sequences);
}

std::int64_t longest_asked(const ModelConfig& model, const PlanRequest& request) {
  return model.max_position > 0 ? model.max_position : request.context;
}

PoolInputs pool_inputs(const ModelConfig& model, const PlanRequest& request) {
  return {.model = model,
          .engine = request.engine,
          .format = request.cache,
          .layout = request.layout,
          .block = request.block,
          .max_batched_tokens = request.max_batched_tokens,
          .prefill_chunks = request.prefill_chunks,
          .with_mtp = request.with_mtp,
          .speculative_tokens = request.speculative_tokens,
          .state_blocks = request.state_blocks,
          .micro_batch = request.micro_batch,
          .window_sequences = request.window_sequences,
          .scratch = scratch_of(model, request)};
}

MemoryPlan plan_memory(const ModelConfig& model, const PlanRequest& asked) {
  check(asked);
  validate(asked.layout, model, asked.engine);
  const PlanRequest request = completed(model, asked);
  validate(request.cache, model, request.engine);
  const PoolInputs inputs = pool_inputs(model, request);
  std::vector<Stage> stages = plan_stages(model, request, inputs);
  const std::size_t limiting = limiting_stage(stages);
  const PoolSet& pools = stages[limiting].pools;
  if (pools.pools.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no layer that keeps a cache: there is nothing to plan", model.name));
  }

  MemoryPlan plan;
  plan.layout = request.layout;
  plan.gpu_memory_bytes = request.gpu_memory_bytes;
  plan.budget_bytes = share_of(*request.utilization, request.gpu_memory_bytes);
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
  plan.at_once = times(run_at_once(request, plan.sequences_per_replica), plan.replicas);
  plan.longest_context = longest_of(inputs, stages, longest_asked(model, request));
  for (Stage& stage : stages) {
    stage.plan.pools = stage.pools.pools;
    stage.plan.fluid = stage.pools.fluid;
    plan.stages.push_back(std::move(stage.plan));
  }
  plan.binding = binding_of(plan, request);
  plan.fits = plan.at_once >= std::max<std::int64_t>(1, request.concurrency);
  const CacheCost cost = cache_cost(model_of_stage(model, request.layout, plan.limiting_stage), request.cache,
                                    request.engine, request.layout.tp, request.with_mtp);
  plan.cache_bytes_per_token = growing_bytes(cost, request.engine, request.layout);
  plan.lines = plan_lines(request, inputs, plan, cost);
  plan.warnings = plan_warnings(model, request, plan);
  plan.warnings.insert(plan.warnings.end(), pools.warnings.begin(), pools.warnings.end());
  return plan;
}

}  // namespace mla::capacity
