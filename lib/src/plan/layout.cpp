// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/error.hpp"

namespace mla::capacity {
namespace {

constexpr int kMostGpus = 65536;

[[noreturn]] void refuse(const std::string& sentence, const std::string& hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, sentence, hint);
}

void check_sizes(const Layout& layout) {
  const std::pair<const char*, int> sizes[] = {
      {"tp", layout.tp}, {"dp", layout.dp}, {"pp", layout.pp}, {"dcp", layout.dcp}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kMostGpus)
      refuse(fmt::format("{} is {}; it must be 1 to {}", name, size, kMostGpus));
  }
  if (layout.ep < 0 || layout.ep > kMostGpus) {
    refuse(
        fmt::format("ep is {}; it must be 0 (experts cut like other matrices) to {}", layout.ep, kMostGpus));
  }
  if (layout.gpus() > kMostGpus) {
    refuse(fmt::format("tp {} x dp {} x pp {} are {} GPUs; at most {} are planned for", layout.tp, layout.dp,
                       layout.pp, layout.gpus(), kMostGpus));
  }
}

void check_heads(const Layout& layout, const ModelConfig& model) {
  if (model.num_heads % layout.tp != 0) {
    refuse(fmt::format("tp {} does not divide the {} attention heads of {}", layout.tp, model.num_heads,
                       model.name),
           "choose a tp that divides the heads, or spread replicas with dp");
  }
  for (const LayerCache& layer : model.layers) {
    const bool heads = layer.kind == AttentionKind::kMha || layer.kind == AttentionKind::kGqa ||
                       layer.kind == AttentionKind::kMqa;
    if (!heads || layer.kv_heads < 1) continue;
    if (layout.tp % layer.kv_heads != 0 && layer.kv_heads % layout.tp != 0) {
      refuse(fmt::format("tp {} neither divides nor is a multiple of the {} KV heads of layer {} of {}",
                         layout.tp, layer.kv_heads, layer.model_layer, model.name));
    }
    if (layout.dcp == 1) continue;
    if (layer.window > 0) {
      refuse(fmt::format("dcp {} cannot split layer {} of {}, which keeps a window of {} tokens", layout.dcp,
                         layer.model_layer, model.name, layer.window),
             "use dcp 1");
    }
    if (layer.kv_heads * layout.dcp > layout.tp) {
      refuse(fmt::format(
                 "dcp {} needs tp of at least {} (KV heads {} x dcp): until then tp splits the heads of {}",
                 layout.dcp, layer.kv_heads * layout.dcp, layer.kv_heads, model.name),
             "use dcp 1 or a larger tp");
    }
  }
  if (layout.tp % layout.dcp != 0) {
    refuse(fmt::format("dcp {} does not divide tp {}: context parallel ranks are taken from the tp group",
                       layout.dcp, layout.tp));
  }
}

void check_experts(const Layout& layout, const ModelConfig& model) {
  if (layout.ep <= 1) return;
  if (!model.moe || model.moe->num_experts == 0) {
    refuse(fmt::format("ep {} is set, but {} has no routed experts", layout.ep, model.name));
  }
  const int ranks = layout.tp * layout.dp;
  if (ranks % layout.ep != 0) {
    refuse(fmt::format("ep {} does not divide the {} ranks of a stage (tp {} x dp {})", layout.ep, ranks,
                       layout.tp, layout.dp));
  }
  if (layout.ep > model.moe->num_experts) {
    refuse(fmt::format("ep {} is more than the {} routed experts of {}", layout.ep, model.moe->num_experts,
                       model.name));
  }
}

void check_stages(const Layout& layout, const ModelConfig& model) {
  if (layout.pp > model.num_layers) {
    refuse(fmt::format("pp {} is more than the {} layers of {}", layout.pp, model.num_layers, model.name));
  }
  if (layout.stage_layers.empty()) return;
  if (layout.stage_layers.size() != static_cast<std::size_t>(layout.pp)) {
    refuse(fmt::format("{} stage sizes are given for pp {}", layout.stage_layers.size(), layout.pp));
  }
  std::int64_t sum = 0;
  for (const int count : layout.stage_layers) {
    if (count < 1) refuse(fmt::format("a pipeline stage has {} layers; it needs at least 1", count));
    sum += count;
  }
  if (sum != model.num_layers) {
    refuse(fmt::format("the pipeline stages have {} layers together, but {} has {}", sum, model.name,
                       model.num_layers));
  }
}

/// "sglang" for what none of its versions has; "vllm 0.6" where another version has it.
std::string without(const EngineRules& engine, bool EngineRules::*what) {
  const bool ever = std::ranges::any_of(
      all_engines(), [&](const EngineRules& rules) { return rules.name == engine.name && rules.*what; });
  if (!ever) return std::string(engine.name);
  return fmt::format("{} {}", engine.name, engine.since.empty() ? engine.oldest : engine.since);
}

}  // namespace

std::string to_text(const Layout& layout) {
  std::string text;
  const auto append = [&](const char* word, int size, const char* joint) {
    if (!text.empty()) text += joint;
    text += fmt::format("{}{}", word, size);
  };
  if (layout.pp > 1) append("PP", layout.pp, "x");
  if (layout.dp > 1) append("DP", layout.dp, "x");
  if (layout.tp > 1 || text.empty()) append("TP", layout.tp, "x");
  if (layout.dcp > 1) append("DCP", layout.dcp, "+");
  if (layout.ep > 1) append("EP", layout.ep, "+");
  return text;
}

void validate(const Layout& layout, const ModelConfig& model) {
  check_sizes(layout);
  check_heads(layout, model);
  check_experts(layout, model);
  check_stages(layout, model);
}

void validate(const Layout& layout, const ModelConfig& model, const EngineRules& engine) {
  validate(layout, model);
  if (layout.dp > 1 && !engine.replicas) {
    refuse(fmt::format("{} has no data parallelism, but dp is {}: one of it is one replica",
                       without(engine, &EngineRules::replicas), layout.dp),
           "plan one replica, and start as many of them as there are GPUs for");
  }
  if (layout.ep > 1 && !engine.expert_ranks) {
    refuse(fmt::format("{} has no expert parallelism, but ep is {}",
                       without(engine, &EngineRules::expert_ranks), layout.ep),
           "leave --ep out: layers or matrices are split instead");
  }
  if (layout.dcp == 1) return;
  if (!engine.context_ranks) {
    refuse(fmt::format("{} has no decode context parallelism, but dcp is {}",
                       without(engine, &EngineRules::context_ranks), layout.dcp),
           "use dcp 1");
  }
  if (model.mla && !caches_latent(model, engine) && model.mla->num_heads * layout.dcp > layout.tp) {
    refuse(fmt::format(
               "dcp {} needs tp of at least {}: {} keeps {} K and V heads of {}, which tp splits first",
               layout.dcp, model.mla->num_heads * layout.dcp, engine.name, model.mla->num_heads, model.name),
           "use dcp 1");
  }
}

std::vector<StageLayers> stage_layers(const Layout& layout, const ModelConfig& model) {
  std::vector<int> counts = layout.stage_layers;
  if (counts.empty()) {
    // vLLM's rule: the remainder goes to the stages from the last but one backwards, because the last stage
    // has the head.
    counts.assign(static_cast<std::size_t>(layout.pp), model.num_layers / layout.pp);
    const int remainder = model.num_layers % layout.pp;
    for (int i = 0; i < remainder; ++i) ++counts[static_cast<std::size_t>(layout.pp - 2 - i)];
  }
  std::vector<StageLayers> stages;
  int first = 0;
  for (const int count : counts) {
    stages.push_back({first, count});
    first += count;
  }
  return stages;
}

}  // namespace mla::capacity
