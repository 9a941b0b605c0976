// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_warnings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/hardware_rules.hpp"
#include "plan/pools.hpp"
#include "plan/refused_cuts.hpp"
#include "plan/weight_padding.hpp"
#include "plan/weight_parts.hpp"

namespace mla::capacity {
namespace {

using Warnings = std::vector<std::string>;

/// The trap an MLA planner exists for.
void latent_replicated(Warnings& out, const ModelConfig& model, const PlanRequest& request) {
  const Layout& layout = request.layout;
  const int copies = layout.tp / layout.dcp;
  if (!caches_latent(model, request.engine) || copies <= 1) return;
  out.push_back(fmt::format(
      "tp {} replicates the latent cache: MLA has one latent head, so {} ranks keep the same "
      "rows and hold no more tokens than one{}",
      layout.tp, copies, layout.dcp > 1 ? fmt::format(" (dcp {} splits the rest)", layout.dcp) : ""));
}

/// Engines that run as many sequences as they have cells for.
void sequences_of_cells(Warnings& out, const PlanRequest& request) {
  const EngineRules& engine = request.engine;
  const bool cells = engine.pools == PoolKind::kCells;
  if ((cells || engine.off_gpu) && request.max_sequences != PlanRequest{}.max_sequences) {
    out.push_back(fmt::format("a limit of {} sequences (--max-seqs) changes nothing with {}: {}",
                              num(request.max_sequences), engine.name,
                              cells ? "it runs as many as it is given cells for, up to what it was built for"
                                    : "what it keeps off the GPU does not run"));
  }
}

/// MLA in name, K and V heads in this engine.
void latent_expanded(Warnings& out, const ModelConfig& model, const PlanRequest& request) {
  if (!model.mla) return;
  const StoredMla stored = stored_mla(model, request.engine);
  if (stored.why.empty()) return;
  EngineRules latent = request.engine;
  latent.expanded = {};
  latent.mla_storage = MlaStorage::kLatent;
  const auto token = [&](const EngineRules& engine) -> std::string {
    try {
      return num(cache_cost(model, request.cache, engine).bytes_per_token) + " B a token";
    } catch (const Error& error) {  // the format has no layout for it, as the plan says itself
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      return "not in this format";
    }
  };
  out.push_back(fmt::format("{} keeps K and V heads of {}, {}, not its latent ({}): {}", request.engine.name,
                            model.name, token(request.engine), token(latent), stored.why));
}

void kv_heads_replicated(Warnings& out, const ModelConfig& model, const Layout& layout) {
  for (const LayerCache& layer : model.layers) {
    const bool heads = layer.kv_heads > 0 && layer.kind != AttentionKind::kMla &&
                       layer.kind != AttentionKind::kNone && layer.kind != AttentionKind::kRecurrent &&
                       layer.kind != AttentionKind::kCompressed;
    if (heads && layout.tp > layer.kv_heads * layout.dcp) {
      out.push_back(fmt::format("tp {} is more than the {} KV heads: each is kept on {} ranks", layout.tp,
                                layer.kv_heads, layout.tp / layer.kv_heads / layout.dcp));
      return;
    }
  }
  if (layout.tp > 1 && model.count(AttentionKind::kCompressed) > 0) {
    out.push_back(fmt::format("tp {} replicates the cache: it has one KV head", layout.tp));
  }
}

void experts(Warnings& out, const ModelConfig& model, const Layout& layout) {
  if (!model.moe || layout.ep <= 1 || model.moe->num_experts % layout.ep == 0) return;
  out.push_back(fmt::format("ep {} does not divide the {} routed experts: the fullest rank keeps {}",
                            layout.ep, model.moe->num_experts, ceil_div(model.moe->num_experts, layout.ep)));
}

void weight_formats(Warnings& out, const PlanRequest& request) {
  const EngineRules& engine = request.engine;
  if (engine.name == "none" || request.weight_bytes) return;
  const WeightScheme& weights = request.weights;
  for (const WeightFormat* format : {&weights.dense, &weights.experts, &weights.shared, &weights.attention}) {
    if (format->files == WeightFiles::kGguf && !engine.gguf) {
      out.push_back(
          fmt::format("weights: {} is a GGUF format, llama.cpp's; where {} reads such files at all, it "
                      "may unpack them",
                      format->name, engine.name));
      return;
    }
    if (format->files == WeightFiles::kSafetensors && engine.gguf) {
      out.push_back(
          fmt::format("weights: {} has no weight format {}: it loads GGUF files", engine.name, format->name));
      return;
    }
  }
}

/// A layout that no release of the engine writes.
void fork_format(Warnings& out, const PlanRequest& request) {
  if (request.cache.mla_row != MlaRow::kNvfp4DsMla) return;
  out.push_back(fmt::format("cache format {} is the layout of a fork of vLLM: {} itself has none such",
                            request.cache.name, request.engine.name));
}

/// llama.cpp's ways to spread a model: layers by default, rows or tensors on demand.
void heads_in_row_split(Warnings& out, const PlanRequest& request) {
  if (request.layout.tp == 1 || request.engine.splits_heads) return;
  out.push_back(
      fmt::format("{} spreads whole layers over GPUs unless --split-mode says otherwise: that is --pp {}, "
                  "not tp {}",
                  request.engine.name, request.layout.pp * request.layout.tp, request.layout.tp));
}

/// Engines that keep activations and graphs outside their share run out of memory where that is too small for them.
void outside_share(Warnings& out, const PlanRequest& request, const MemoryPlan& plan) {
  if (!request.engine.runtime_outside_share || !request.cache_bytes.empty()) return;
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
  const std::int64_t outside = stage.runtime_bytes - stage.charged_bytes;
  const std::int64_t rest = request.gpu_memory_bytes - plan.budget_bytes;
  if (outside <= rest) return;
  out.push_back(fmt::format(
      "activations and graphs take {}, more than the {} that a share of {} leaves outside: {} would run "
      "out of memory; lower --utilization or --batched-tokens",
      gib(outside), gib(rest), num(*request.utilization), request.engine.name));
}

/// What a plan without an engine, or for a cache that is not on the GPU, counts.
void no_serving_engine(Warnings& out, const PlanRequest& request) {
  const EngineRules& engine = request.engine;
  if (engine.name == "none") {
    out.emplace_back(
        "engine none: tokens are counted one by one, in no engine's pages; the share of memory and what "
        "activations, "
        "graphs and libraries take are assumed as for vllm");
  }
  if (engine.off_gpu) {
    out.push_back(
        fmt::format("{} keeps copies of an engine's cache in host memory or on disk, in chunks of {} tokens: "
                    "the plan is what "
                    "--kv-memory holds of them for each GPU, whatever the GPU itself holds",
                    engine.name, engine.block));
  }
}

/// Engines that give window layers a pool of their own.
void window_pools(Warnings& out, const ModelConfig& model, const PlanRequest& request,
                  const MemoryPlan& plan) {
  if (request.engine.pool_share != PoolShare::kLength) return;
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
  for (const CachePool& pool : stage.pools) {
    const CacheGroup& group = pool.groups.front();
    if (group.kind != GroupKind::kWindow || stage.cache_budget <= 0) continue;
    const double share =
        static_cast<double>(times(pool.blocks, pool.block_bytes)) / static_cast<double>(stage.cache_budget);
    out.push_back(fmt::format(
        "{} splits the cache where max_attention_window names the windows of {}: {:.1f} % for the {} layers "
        "of window "
        "{}, as window x bytes of a token are to those of the full layers at {} tokens; without that setting "
        "every "
        "layer keeps the whole length (tensorrt-llm@0.21)",
        request.engine.name, model.name, 100 * share, group.layers, num(group.window), num(plan.context)));
  }
}

void engine_version(Warnings& out, const EngineRules& engine) {
  if (engine.fit != VersionFit::kCovered) {
    const bool older = engine.fit == VersionFit::kOlder;
    out.push_back(fmt::format(
        "this version of {} is {} than those whose logs were checked ({} to {}): the {} "
        "rules are used{}",
        engine.name, older ? "older" : "newer", engine.oldest, engine.newest, older ? "oldest" : "newest",
        engine.since.empty() ? "" : fmt::format(", those from {} on", engine.since)));
  }
}

void engine_rules(Warnings& out, const ModelConfig& model, const PlanRequest& request,
                  const MemoryPlan& plan) {
  const EngineRules& engine = request.engine;
  if (engine.name == "vllm" && caches_latent(model, engine) && plan.block != 64 &&
      model.count(AttentionKind::kRecurrent) == 0 && plan.block >= 16) {
    out.push_back(
        fmt::format("block size {} leaves FlashMLA out (it takes 64); Cutlass MLA takes 128, FlashInfer 32 "
                    "or 64, Triton MLA any multiple of 16",
                    plan.block));
  }
  const int wanted = request.block > 0 ? request.block : default_block(model, engine);
  if (plan.block > wanted && model.count(AttentionKind::kRecurrent) > 0) {
    out.push_back(
        fmt::format("block size {} is raised to {}: a page must hold a recurrent state", wanted, plan.block));
  }
  if (model.num_mtp_layers > 0 && !request.with_mtp) {
    out.push_back(
        fmt::format("{} prediction layer{} of the model {} not counted; --mtp adds weights and cache",
                    model.num_mtp_layers, model.num_mtp_layers == 1 ? "" : "s",
                    model.num_mtp_layers == 1 ? "is" : "are"));
  }
}

/// DeepSeek-V4 in vLLM from 0.24 on.
void packed_entries(Warnings& out, const ModelConfig& model, const PlanRequest& request) {
  if (request.engine.entry_pages != EntryPages::kPacked || model.count(AttentionKind::kCompressed) == 0)
    return;
  out.push_back(
      fmt::format("{} from 0.24 on packs the page sizes of {} into one block; of three logs of such pools "
                  "one holds 7 % other "
                  "than these rules say, and no rule was found that agrees with all three (vllm#51041, "
                  "#51454): take the tokens "
                  "as within 7 %",
                  request.engine.name, model.name));
}

void beyond_positions(Warnings& out, const ModelConfig& model, const PlanRequest& request) {
  if (model.max_position < 1 || request.context <= model.max_position) return;
  out.push_back(fmt::format(
      "context {} is beyond the {} positions of {}: engines refuse it, unless told to stretch the positions",
      num(request.context), num(model.max_position), model.name));
}

/// A budget that cannot stand beside such weights is from another set-up.
void budget_beside_weights(Warnings& out, const PlanRequest& request, const MemoryPlan& plan) {
  if (request.cache_bytes.empty() || request.engine.off_gpu) return;
  for (const StagePlan& stage : plan.stages) {
    if (plus(stage.weight_bytes, stage.cache_budget) <= request.gpu_memory_bytes) continue;
    out.push_back(
        fmt::format("weights ({}) and the cache budget given ({}) are more than the {} of a GPU: the budget "
                    "is of another layout, or the weights are smaller than counted",
                    gib(stage.weight_bytes), gib(stage.cache_budget), gib(request.gpu_memory_bytes)));
    return;
  }
}

void newer_models(Warnings& out, const ModelConfig& model, const EngineRules& engine) {
  const bool sparse = model.indexer || model.count(AttentionKind::kCompressed) > 0;
  if (engine.sparse_models || !sparse) return;
  out.push_back(
      fmt::format("{} {} runs no models with a top-k indexer, which came with 0.11: it would not load {}, "
                  "and this counts what its "
                  "rules would make of it",
                  engine.name, engine.since.empty() ? engine.oldest : engine.since, model.name));
}

/// What model, engine and formats bring along, whatever the layout and the context are.
void in_any_plan(Warnings& out, const ModelConfig& model, const PlanRequest& request) {
  out.insert(out.end(), model.warnings.begin(), model.warnings.end());
  no_serving_engine(out, request);
  latent_expanded(out, model, request);
  weight_formats(out, request);
  fork_format(out, request);
  packed_entries(out, model, request);
  newer_models(out, model, request.engine);
  const Warnings cautions = hardware_cautions(model, request);
  out.insert(out.end(), cautions.begin(), cautions.end());
  engine_version(out, request.engine);
  if (!request.weight_bytes) {
    for (const std::string& gap : weight_gaps(model)) out.push_back("weights: " + gap);
    for (const std::string& doubt : request.weights.doubts) out.push_back("weights: " + doubt);
  }
}

}  // namespace

std::vector<std::string> setting_warnings(const ModelConfig& model, const PlanRequest& request) {
  Warnings out;
  beyond_positions(out, model, request);
  in_any_plan(out, model, request);
  return out;
}

std::vector<std::string> plan_warnings(const ModelConfig& model, const PlanRequest& request,
                                       const MemoryPlan& plan) {
  Warnings out;
  beyond_positions(out, model, request);
  budget_beside_weights(out, request, plan);
  latent_replicated(out, model, request);
  sequences_of_cells(out, request);
  kv_heads_replicated(out, model, request.layout);
  heads_in_row_split(out, request);
  experts(out, model, request.layout);
  const Warnings cuts = refused_cuts(model, request, request.layout);
  out.insert(out.end(), cuts.begin(), cuts.end());
  engine_rules(out, model, request, plan);
  outside_share(out, request, plan);
  window_pools(out, model, request, plan);
  if (request.engine.marlin_experts && !request.weight_bytes && !plan.stages.empty()) {
    const StagePlan& stage = plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
    if (const auto padded = padded_experts(model, request.weights, request.layout, stage.weights)) {
      out.push_back(fmt::format(
          "weights: {} experts are counted as they are; Marlin's kernels pad theirs to {} x {} and take {} "
          "more on a GPU",
          request.weights.experts.name, num(padded->intermediate), num(padded->hidden),
          gib(padded->extra_bytes)));
    }
  }
  in_any_plan(out, model, request);
  return out;
}

}  // namespace mla::capacity
