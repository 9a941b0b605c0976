// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_space.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mla/error.hpp"
#include "plan/plan_request.hpp"
#include "plan/refused_cuts.hpp"

namespace mla::capacity {
namespace {

/// `given` alone, or 1 to `most`.
std::vector<int> sizes(const std::optional<int>& given, int most) {
  if (given) return {*given};
  std::vector<int> all;
  for (int size = 1; size <= most; ++size) all.push_back(size);
  return all;
}

}  // namespace

int default_expert_ranks(const ModelConfig& model, const Layout& layout) {
  const int ranks = layout.tp * layout.dp;
  const bool spread = layout.dp > 1 && model.moe && model.moe->num_experts >= ranks;
  return spread ? ranks : 0;
}

std::string crossing(const Layout& layout, int gpus_per_node) {
  if (layout.tp > gpus_per_node) {
    return fmt::format("tp {} is more than the {} GPU{} of a node: tp stays inside one", layout.tp,
                       gpus_per_node, gpus_per_node == 1 ? "" : "s");
  }
  if (layout.gpus() > gpus_per_node && gpus_per_node % layout.tp != 0) {
    return fmt::format(
        "tp {} does not divide the {} GPUs of a node: of {} GPUs some tp groups would lie in two", layout.tp,
        gpus_per_node, layout.gpus());
  }
  return {};
}

std::vector<Layout> replica_shapes(const ModelConfig& model, const EngineRules& engine, int gpus,
                                   const LayoutSpace& space) {
  const bool splits = engine.splits_heads || space.split_heads;
  const bool pipeline = space.pipeline || !splits;
  const bool context = space.context_parallel && engine.context_ranks;
  std::vector<Layout> shapes;
  for (const int pp : sizes(space.pp, pipeline ? std::min(gpus, model.num_layers) : 1)) {
    for (const int tp : sizes(space.tp, splits ? std::min(gpus / pp, space.gpus_per_node) : 1)) {
      if (tp > gpus / pp) continue;
      for (const int dcp : sizes(space.dcp, context ? tp : 1)) {
        if (tp % dcp != 0) continue;
        Layout shape{.tp = tp, .pp = pp, .dcp = dcp};
        if (space.pp) shape.stage_layers = space.stage_layers;
        if (possible(shape, model, engine)) shapes.push_back(std::move(shape));
      }
    }
  }
  return shapes;
}

Layout with_replicas(Layout shape, int dp, const ModelConfig& model, const EngineRules& engine,
                     const LayoutSpace& space) {
  shape.dp = dp;
  shape.ep = space.ep ? *space.ep : engine.expert_ranks ? default_expert_ranks(model, shape) : 0;
  return shape;
}

std::vector<Layout> possible_layouts(const ModelConfig& model, const EngineRules& engine, int gpus,
                                     const LayoutSpace& space) {
  if (gpus < 1) throw Error(ErrorCode::kInvalidArgument, fmt::format("{} GPUs: at least 1 is needed", gpus));
  std::vector<Layout> layouts;
  for (const Layout& shape : replica_shapes(model, engine, gpus, space)) {
    const int size = shape.tp * shape.pp;
    if (gpus % size != 0 || (space.dp && *space.dp != gpus / size)) continue;
    Layout layout = with_replicas(shape, gpus / size, model, engine, space);
    if (crossing(layout, space.gpus_per_node).empty() && possible(layout, model, engine))
      layouts.push_back(std::move(layout));
  }
  return layouts;
}

std::vector<Layout> possible_layouts(const ModelConfig& model, const PlanRequest& request, int gpus,
                                     const LayoutSpace& space) {
  std::vector<Layout> layouts = possible_layouts(model, request.engine, gpus, space);
  std::vector<Layout> loaded;
  for (const Layout& layout : layouts) {
    if (refused_cuts(model, request, layout).empty()) loaded.push_back(layout);
  }
  return loaded.empty() ? layouts : loaded;
}

}  // namespace mla::capacity
