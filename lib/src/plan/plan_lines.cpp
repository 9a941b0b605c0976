// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

/// Collects lines; the shared sources are said once here.
class Writer {
 public:
  explicit Writer(const PlanRequest& request)
      : engine_(fmt::format("rules of {}{}{}: {}", request.engine.name,
                            request.engine.since.empty() ? "" : " ", request.engine.since,
                            request.engine.source)) {}

  void add(std::string key, std::string title, Unit unit, Number value, std::string formula,
           std::string source) {
    lines_.push_back({.key = std::move(key),
                      .title = std::move(title),
                      .unit = unit,
                      .value = value,
                      .formula = std::move(formula),
                      .source = std::move(source)});
  }
  void add_by_engine(std::string key, std::string title, Unit unit, Number value, std::string formula) {
    add(std::move(key), std::move(title), unit, value, std::move(formula), engine_);
  }
  void append(const std::vector<Line>& lines) { lines_.insert(lines_.end(), lines.begin(), lines.end()); }
  std::vector<Line> take() { return std::move(lines_); }

 private:
  std::string engine_;
  std::vector<Line> lines_;
};

void memory_lines(Writer& out, const PlanRequest& request, const MemoryPlan& plan, const StagePlan& stage) {
  out.add("memory.gpu", "memory of a GPU", Unit::kBytes, plan.gpu_memory_bytes, "as described",
          fmt::format("gpu {}", request.gpu_name));
  const double utilization = *request.utilization;
  const std::string share_source =
      utilization == request.engine.utilization ? fmt::format("default of {}", request.engine.name) : "given";
  const bool of_free = request.engine.budget == Budget::kShareOfFree;
  if (!of_free) {
    out.add("memory.budget", "budget of the engine", Unit::kBytes, plan.budget_bytes,
            fmt::format("floor({} x {})", num(utilization), num(plan.gpu_memory_bytes)), share_source);
  }
  out.add("weights.total", "weights", Unit::kBytes, stage.weight_bytes,
          request.weight_bytes ? "as given" : fmt::format("sum of {} parts", stage.weights.lines.size()),
          request.weight_bytes ? "given" : request.weights.source);
  out.append(stage.runtime);
  std::string formula;
  std::string source = "the lines above";
  if (!request.cache_bytes.empty()) {
    formula = "as given";
    source = "given";
  } else if (of_free) {
    formula = stage.cache_budget > 0
                  ? fmt::format("{} x (memory - weights - runtime)", num(utilization))
                  : fmt::format("memory - weights - runtime: nothing to take {} of", num(utilization));
    source = share_source;
  } else if (request.engine.runtime_outside_share) {
    formula = "budget - weights - libraries; activations and graphs use the rest of the memory";
  } else {
    formula = "budget - weights - runtime";
  }
  out.add("cache.budget", "left for the cache", Unit::kBytes, stage.cache_budget, formula, source);
}

/// `growing`: bytes of a token in all pools, which are those of this one if it is `alone`.
std::string block_formula(const CachePool& pool, double growing, bool alone) {
  if (pool.page_bytes > 0) {
    std::int64_t layers = pool.block_bytes / std::max<std::int64_t>(1, pool.page_bytes);
    return fmt::format("{} layers x {} B a page", layers, num(pool.page_bytes));
  }
  const CacheGroup& group = pool.groups.front();
  if (group.kind == GroupKind::kState) return fmt::format("sum of {} states", group.layers);
  if (!alone) return fmt::format("sum of {} pages of {} tokens", group.layers, num(group.block));
  return fmt::format("{} tokens x {} B", num(group.block), num(growing));
}

std::string blocks_of_sequence(const PoolInputs& inputs, const CachePool& pool, std::int64_t length) {
  std::string text;
  for (const CacheGroup& group : pool.groups) {
    if (!text.empty()) text += " + ";
    switch (group.kind) {
      case GroupKind::kState: {
        const std::int64_t blocks = sequence_blocks(inputs, {.groups = {group}}, length);
        text += fmt::format("{} state{}", num(blocks), blocks == 1 ? "" : "s");
        break;
      }
      case GroupKind::kWindow:
        text += fmt::format("window {}", num(sequence_blocks(inputs, {.groups = {group}}, length)));
        break;
      case GroupKind::kFull:
        text += inputs.layout.dcp > 1 ? fmt::format("ceil(ceil({} / dcp {}) / {})", num(length),
                                                    inputs.layout.dcp, num(group.block))
                                      : fmt::format("ceil({} / {})", num(length), num(group.block));
        break;
    }
  }
  return text;
}

/// How blocks come from the cache's bytes.
std::string blocks_formula(const EngineRules& engine, const MemoryPlan& plan, const StagePlan& stage,
                           const CachePool& pool) {
  if (stage.fluid) return fmt::format("{} whole sequences x their blocks", num(plan.sequences_per_replica));
  const char* rounding = engine.round_blocks_up ? "ceil" : "floor";
  if (stage.pools.size() == 1)
    return fmt::format("{}({} / {})", rounding, num(stage.cache_budget), num(pool.block_bytes));
  if (pool.groups.front().kind == GroupKind::kState)
    return fmt::format("{} / (1 + {}) of the cache, the states' share, / bytes of a block",
                       num(engine.state_pool_ratio), num(engine.state_pool_ratio));
  const std::int64_t bytes = times(pool.blocks, pool.block_bytes);
  const double share =
      stage.cache_budget > 0 ? 100 * static_cast<double>(bytes) / static_cast<double>(stage.cache_budget) : 0;
  const auto of_kind = [&](GroupKind kind) {
    return std::ranges::any_of(stage.pools,
                               [&](const CachePool& other) { return other.groups.front().kind == kind; });
  };
  const std::string beside_states =
      of_kind(GroupKind::kState) ? fmt::format("the states taking {} / (1 + {})",
                                               num(engine.state_pool_ratio), num(engine.state_pool_ratio))
                                 : "";
  if (engine.pool_share != PoolShare::kLength && !of_kind(GroupKind::kWindow))
    return fmt::format("{:.1f} % of the cache, {}", share, beside_states);
  return fmt::format("{:.1f} % of the cache, {}{}{}", share, beside_states, beside_states.empty() ? "" : "; ",
                     engine.pool_share == PoolShare::kLength
                         ? "a pool's share being its window (full: the context) x bytes of a token in it"
                         : fmt::format("{} tokens of a window pool for each of the full one",
                                       num(engine.window_pool_ratio)));
}

void pool_lines(Writer& out, const PlanRequest& request, const PoolInputs& inputs, const MemoryPlan& plan,
                const StagePlan& stage) {
  const EngineRules& engine = request.engine;
  for (const CachePool& pool : stage.pools) {
    const std::string prefix = stage.pools.size() == 1 ? "" : pool.name + " pool: ";
    const std::string key = stage.pools.size() == 1 ? "pool" : fmt::format("pool.{}", pool.name);
    out.add_by_engine(key + ".block_bytes", prefix + "bytes of a block", Unit::kBytes, pool.block_bytes,
                      block_formula(pool, plan.cache_bytes_per_token, stage.pools.size() == 1));
    if (pool.padding_bytes > 0) {
      out.add_by_engine(
          key + ".padding", prefix + "padding under a state", Unit::kBytes, pool.padding_bytes,
          fmt::format("page {} - state {}", num(pool.page_bytes), num(pool.page_bytes - pool.padding_bytes)));
    }
    out.add_by_engine(key + ".blocks", prefix + "blocks", Unit::kBlocks, pool.blocks,
                      blocks_formula(engine, plan, stage, pool));
    out.add_by_engine(key + ".sequence_blocks", prefix + "blocks of one sequence", Unit::kBlocks,
                      sequence_blocks(inputs, pool, plan.context),
                      blocks_of_sequence(inputs, pool, plan.context));
  }
  out.add("cache.sequence_bytes", "cache of one sequence", Unit::kBytes, plan.bytes_per_sequence,
          fmt::format("whole blocks of {} tokens of context", num(plan.context)), "the lines above");
}

void answer_lines(Writer& out, const PlanRequest& request, const MemoryPlan& plan, const StagePlan& stage) {
  constexpr std::int64_t kCells = 256;
  const EngineRules& engine = request.engine;
  const bool cells = engine.pools == PoolKind::kCells;
  const bool by_concurrency = engine.token_count == TokenCount::kConcurrency;
  const std::size_t groups = stage.pools.empty() ? 0 : stage.pools.front().groups.size();
  out.add_by_engine("answer.tokens", "tokens a replica holds, as logged", Unit::kTokens, plan.tokens_logged,
                    cells            ? fmt::format("{} sequences x {} cells: --ctx-size",
                                                   num(plan.sequences_per_replica), num(round_up(plan.context, kCells)))
                    : by_concurrency ? fmt::format("int(concurrency x {})", num(plan.context))
                    : groups > 1
                        ? fmt::format("blocks // {} groups x smallest block", groups)
                        : fmt::format("blocks x {} tokens{}", plan.block,
                                      request.layout.dcp > 1 ? fmt::format(" x dcp {}", request.layout.dcp)
                                                             : std::string()));
  out.add_by_engine(
      "answer.concurrency", "concurrency at this context, as logged", Unit::kRatio, plan.concurrency_logged,
      cells ? "cache / cache of one sequence; no line of its log" : "blocks / blocks of one sequence");
  out.add_by_engine(
      "answer.sequences_per_replica", "whole sequences a replica holds", Unit::kSequences,
      plan.sequences_per_replica,
      engine.reserved_blocks > 0
          ? fmt::format("floor((blocks - {} reserved) / blocks of one sequence)", engine.reserved_blocks)
          : "floor(blocks / blocks of one sequence)");
  out.add("answer.sequences", "whole sequences, cluster", Unit::kSequences, plan.sequences,
          fmt::format("{} replicas x {}", plan.replicas, num(plan.sequences_per_replica)), "layout");
  out.add_by_engine("answer.longest", "longest single sequence", Unit::kTokens, plan.longest_context,
                    "largest length whose blocks fit, at most the model's maximum");
}

}  // namespace

ModelConfig model_of_stage(const ModelConfig& model, const Layout& layout, int stage) {
  const std::vector<StageLayers> stages = stage_layers(layout, model);
  const StageLayers range = stages[static_cast<std::size_t>(stage)];
  const bool last = stage + 1 == static_cast<int>(stages.size());
  ModelConfig part = model;
  std::erase_if(part.layers, [&](const LayerCache& layer) {
    if (layer.mtp) return !last;
    return layer.model_layer < range.first || layer.model_layer >= range.first + range.count;
  });
  return part;
}

double growing_bytes(const CacheCost& cost, const EngineRules& engine, const Layout& layout) {
  const double index =
      engine.index_whole_under_dcp ? cost.index_bytes_per_token : cost.index_bytes_per_token / layout.dcp;
  return cost.bytes_per_token / layout.dcp + index;
}

std::vector<Line> plan_lines(const PlanRequest& request, const PoolInputs& inputs, const MemoryPlan& plan,
                             const CacheCost& cost) {
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
  Writer out(request);
  memory_lines(out, request, plan, stage);
  out.append(cost.lines);
  std::string formula = "sum of what grows with a token";
  if (request.layout.dcp > 1) formula += fmt::format(", / dcp {}", request.layout.dcp);
  if (request.layout.dcp > 1 && request.engine.index_whole_under_dcp) formula += " but for index keys";
  out.add("cache.bytes_per_token", "cache of one token", Unit::kBytes, plan.cache_bytes_per_token, formula,
          "the lines above");
  pool_lines(out, request, inputs, plan, stage);
  answer_lines(out, request, plan, stage);
  return out.take();
}

}  // namespace mla::capacity
