// SPDX-License-Identifier: Apache-2.0
#include "plan/counterfactual.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/count.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/plan_request.hpp"

namespace mla::capacity {
namespace {

struct Variant {
  std::string name;
  int kv_heads = 0;  ///< 0: one for each query head
};

Variant parse_variant(std::string_view what, const ModelConfig& model) {
  const std::string lower = text::to_lower(what);
  if (lower == "mha") return {"MHA", 0};
  if (lower == "mqa") return {"MQA", 1};
  if (lower.starts_with("gqa:")) {
    const auto heads = static_cast<int>(
        text::parse_count(lower.substr(4), "the KV heads of gqa", ErrorCode::kInvalidArgument, 1, 1 << 16));
    if (model.num_heads % heads != 0) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("gqa:{} does not divide the {} query heads of {}",
                                                           heads, model.num_heads, model.name));
    }
    return {fmt::format("GQA-{}", heads), heads};
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is no kind of attention to compare with", text::quoted(what)),
              "allowed are mha, mqa and gqa:HEADS");
}

/// The model with K and V heads in every attention layer.
ModelConfig with_heads(const ModelConfig& model, const Variant& variant) {
  if (model.count(AttentionKind::kCompressed) > 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} keeps compressed entries: no widths of K and V heads to compare with", model.name));
  }
  ModelConfig other = model;
  for (LayerCache& layer : other.layers) {
    if (layer.kind == AttentionKind::kRecurrent || layer.kind == AttentionKind::kNone) continue;
    const int q_heads = layer.q_heads > 0 ? layer.q_heads : model.num_heads;
    if (layer.kind == AttentionKind::kMla && model.mla) {
      const MlaDims& dims = *model.mla;
      layer.head_dim_k = variant.kv_heads == 0 ? dims.head_width() : dims.qk_nope_head_dim;
      layer.head_dim_v = dims.v_head_dim;
    }
    layer.kv_heads = variant.kv_heads == 0 ? q_heads : variant.kv_heads;
    layer.kind = layer.kv_heads == q_heads ? AttentionKind::kMha
                 : layer.kv_heads == 1     ? AttentionKind::kMqa
                                           : AttentionKind::kGqa;
    layer.indexer = false;
  }
  other.mla.reset();
  other.indexer.reset();
  other.name += " as " + variant.name;
  return other;
}

/// The cache budget of `plan`, stage by stage. Heads are split by tp already, so dcp is given up where it
/// cannot go further. Empty: the layout is not for these heads.
std::optional<MemoryPlan> plan_of(const ModelConfig& other, PlanRequest request, const MemoryPlan& plan) {
  request.layout = plan.layout;
  if (!possible(request.layout, other, request.engine)) request.layout.dcp = 1;
  if (!possible(request.layout, other, request.engine)) return std::nullopt;
  request.cache_bytes.clear();
  for (const StagePlan& stage : plan.stages)
    request.cache_bytes.push_back(std::max<std::int64_t>(0, stage.cache_budget));
  return plan_memory(other, request);
}

}  // namespace

double bytes_of_token(const CacheCost& cost) {
  return cost.bytes_per_token + cost.index_bytes_per_token + cost.window_bytes_per_token;
}

Counterfactual counterfactual(const ModelConfig& model, const PlanRequest& asked,
                              const std::vector<Layout>& layouts, std::string_view what) {
  const Variant variant = parse_variant(what, model);
  const ModelConfig other = with_heads(model, variant);
  PlanRequest request = completed(model, asked);
  const double now = bytes_of_token(cache_cost(model, request.cache, request.engine));
  if (request.cache.mla_only) request.cache = find_kv_format("fp8");
  const CacheCost cost = cache_cost(other, request.cache, request.engine);

  Counterfactual answer;
  answer.name = variant.name;
  answer.format = std::string(request.cache.name);
  answer.bytes_per_token = bytes_of_token(cost);
  answer.ratio = now > 0 ? answer.bytes_per_token / now : 0;
  std::string formula;
  for (const Line& line : cost.lines) {
    if (line.key == "cache.state") continue;
    // A window layer's line ends in " x 1,024 tokens".
    const std::size_t end =
        line.key.starts_with("cache.window") ? line.formula.rfind(" x ") : std::string::npos;
    formula += (formula.empty() ? "" : " + ") + line.formula.substr(0, end);
  }
  answer.line = {.key = "versus." + text::to_lower(variant.name),
                 .title = fmt::format("cache of one token as {}", variant.name),
                 .value = answer.bytes_per_token,
                 .formula = std::move(formula),
                 .source = fmt::format("widths of {}; cache format {}", model.name, answer.format)};
  bool found = false;
  for (const Layout& layout : layouts) {
    PlanRequest own = completed(model, asked);
    own.layout = layout;
    const std::optional<MemoryPlan> there = plan_of(other, request, plan_memory(model, own));
    if (!there) continue;
    const bool better =
        there->sequences > answer.sequences ||
        (there->sequences == answer.sequences && there->longest_context > answer.longest_context);
    if (found && !better) continue;
    found = true;
    answer.layout = there->layout;
    answer.sequences = there->sequences;
    answer.longest_context = there->longest_context;
  }
  if (!found) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no layout asked about suits {} heads of K and V", variant.name));
  }
  return answer;
}

}  // namespace mla::capacity
