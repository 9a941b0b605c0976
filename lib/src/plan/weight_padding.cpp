// SPDX-License-Identifier: Apache-2.0
#include "plan/weight_padding.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "plan/arithmetic.hpp"

namespace mla::capacity {

std::optional<PaddedExperts> padded_experts(const ModelConfig& model, const WeightScheme& scheme,
                                            const Layout& layout, const WeightPlan& counted) {
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kColumns = 128;
  if (!model.moe || model.moe->num_experts == 0 || scheme.experts.name != "mxfp4") return std::nullopt;
  const std::int64_t shards = std::max(1, layout.tp * layout.dp / std::max(1, layout.ep));
  const std::int64_t intermediate = ceil_div(model.moe->moe_intermediate_size, shards);
  const std::int64_t hidden = model.moe->latent_size > 0 ? model.moe->latent_size : model.hidden_size;
  if (intermediate < 1 || hidden < 1) return std::nullopt;
  PaddedExperts padded{.intermediate = round_up(intermediate, kColumns), .hidden = round_up(hidden, kRows)};
  if (padded.intermediate == intermediate && padded.hidden == hidden) return std::nullopt;
  const double growth = static_cast<double>(padded.intermediate) / static_cast<double>(intermediate) *
                        static_cast<double>(padded.hidden) / static_cast<double>(hidden);
  double bytes = 0;
  for (const Line& line : counted.lines) {
    if (line.key == "weights.experts.routed")
      bytes += static_cast<double>(std::get<std::int64_t>(line.value));
  }
  padded.extra_bytes = std::llround(bytes * (growth - 1));
  return padded;
}

std::int64_t absorbed_bytes(const ModelConfig& model, const WeightScheme& scheme, const Layout& layout,
                            int stage, const EngineRules& engine, bool with_mtp) {
  constexpr int kPlainBits = 16;
  if (!engine.absorbed_copies || scheme.attention.bits >= kPlainBits || !caches_latent(model, engine))
    return 0;
  const MlaDims& dims = *model.mla;
  const std::int64_t heads = ceil_div(dims.num_heads, layout.tp);
  const std::int64_t matrix =
      times(times(heads, dims.qk_nope_head_dim + dims.v_head_dim), std::int64_t{2} * dims.kv_lora_rank);
  const StageLayers range = stage_layers(layout, model)[static_cast<std::size_t>(stage)];
  const bool last = stage + 1 == layout.pp;
  const auto here = std::ranges::count_if(model.layers, [&](const LayerCache& layer) {
    if (layer.kind != AttentionKind::kMla) return false;
    if (layer.mtp) return with_mtp && last;
    return layer.model_layer >= range.first && layer.model_layer < range.first + range.count;
  });
  return times(here, matrix);
}

}  // namespace mla::capacity
