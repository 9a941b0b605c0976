// SPDX-License-Identifier: Apache-2.0
#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "mla/error.hpp"
#include "plan/holding.hpp"
#include "plan/plan_request.hpp"

namespace mla::capacity {
namespace {

void add_context_parallel(std::vector<Layout>& layouts, const Layout& base, const ModelConfig& model,
                          const EngineRules& engine) {
  if (!engine.context_ranks) return;
  for (int dcp = 2; dcp <= base.tp; ++dcp) {
    if (base.tp % dcp != 0) continue;
    Layout layout = base;
    layout.dcp = dcp;
    if (possible(layout, model, engine)) layouts.push_back(layout);
  }
}

std::int64_t wanted(const PlanRequest& request) {
  return std::max<std::int64_t>(1, request.concurrency);
}

/// The request in another layout.
PlanRequest in_layout(const PlanRequest& request, const Layout& layout) {
  PlanRequest one = request;
  one.layout = layout;
  return one;
}

bool enough(const ModelConfig& model, const PlanRequest& request) {
  return Holding(model, request).sequences() >= wanted(request);
}

/// `shape` with `dp` replicas, experts spread as they are by default.
Layout with_replicas(Layout shape, int dp, const ModelConfig& model, const EngineRules& engine) {
  shape.dp = dp;
  shape.ep = engine.expert_ranks ? default_expert_ranks(model, shape) : 0;
  return shape;
}

/// Fewest replicas of `shape`, at most `most`, that hold what is wanted; 0 if none do. More replicas never hold
/// less: experts and caches only spread further. One GPU alone is the exception, as it needs no memory for
/// communication.
int fewest_replicas(const ModelConfig& model, const PlanRequest& request, const Layout& shape, int most) {
  const auto holds = [&](int dp) {
    const Layout layout = with_replicas(shape, dp, model, request.engine);
    return possible(layout, model, request.engine) && enough(model, in_layout(request, layout));
  };
  if (!request.engine.replicas) most = std::min(most, 1);
  if (most < 1) return 0;
  if (shape.tp * shape.pp == 1 && holds(1)) return 1;
  if (!holds(most)) return 0;
  int low = 1;
  int high = most;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (holds(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
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

std::vector<Layout> possible_layouts(const ModelConfig& model, const EngineRules& engine, int gpus,
                                     const LayoutSpace& space) {
  if (gpus < 1) throw Error(ErrorCode::kInvalidArgument, fmt::format("{} GPUs: at least 1 is needed", gpus));
  std::vector<Layout> layouts;
  const int widest = engine.splits_heads ? space.gpus_per_node : 1;
  const bool pipeline = space.pipeline || !engine.splits_heads;
  for (int pp = 1; pp <= (pipeline ? std::min(gpus, model.num_layers) : 1); ++pp) {
    if (gpus % pp != 0) continue;
    for (int tp = 1; tp <= std::min(gpus / pp, widest); ++tp) {
      if (gpus / pp % tp != 0) continue;
      const Layout layout = with_replicas({.tp = tp, .pp = pp}, gpus / pp / tp, model, engine);
      if (!crossing(layout, space.gpus_per_node).empty() || !possible(layout, model, engine)) continue;
      layouts.push_back(layout);
      if (space.context_parallel) add_context_parallel(layouts, layout, model, engine);
    }
  }
  return layouts;
}

std::vector<MemoryPlan> rank_layouts(const ModelConfig& model, const PlanRequest& request,
                                     const std::vector<Layout>& layouts) {
  std::vector<MemoryPlan> plans;
  for (const Layout& layout : layouts) plans.push_back(plan_memory(model, in_layout(request, layout)));
  const auto rank = [](const MemoryPlan& plan) {
    return std::tuple(-plan.sequences, -plan.longest_context, plan.layout.pp, plan.layout.dp,
                      plan.layout.dcp);
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const MemoryPlan& a, const MemoryPlan& b) { return rank(a) < rank(b); });
  return plans;
}

Layout best_layout(const ModelConfig& model, const PlanRequest& request, const std::vector<Layout>& layouts) {
  const auto rank = [&](const Layout& layout) {
    Holding holding(model, in_layout(request, layout));
    return std::tuple(-holding.sequences(), -holding.longest_context(), layout.pp, layout.dp, layout.dcp);
  };
  const Layout* best = &layouts.front();
  auto least = rank(*best);
  for (const Layout& layout : layouts) {
    const auto its = rank(layout);
    if (!(its < least)) continue;
    least = its;
    best = &layout;
  }
  return *best;
}

std::int64_t largest_context(const ModelConfig& model, const PlanRequest& request) {
  Holding holding(model, request);
  std::int64_t low = 0;
  std::int64_t high = std::max(model.max_position, request.context);
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (holding.sequences(middle) >= wanted(request)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::optional<GpuAnswer> fewest_gpus(const ModelConfig& model, PlanRequest request, int limit) {
  const int step = request.layout.tp * request.layout.pp;
  const int dp = fewest_replicas(model, request, request.layout, limit / step);
  if (dp == 0) return std::nullopt;
  request.layout = with_replicas(request.layout, dp, model, request.engine);
  return GpuAnswer{request.layout, plan_memory(model, request)};
}

std::optional<double> smallest_utilization(const ModelConfig& model, PlanRequest request) {
  constexpr int kSteps = 1000;
  const auto fits = [&](int step) {
    request.utilization = static_cast<double>(step) / kSteps;
    return enough(model, request);
  };
  if (!fits(kSteps)) return std::nullopt;
  int low = 1;
  int high = kSteps;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return static_cast<double>(low) / kSteps;
}

std::optional<GpuAnswer> fewest_gpus(const ModelConfig& model, const PlanRequest& request,
                                     const LayoutSpace& space, int limit) {
  // One replica of each shape is a layout of its own number of GPUs; the smallest come first, so that later ones
  // are only asked whether they do with less than the best so far.
  std::vector<Layout> shapes;
  for (int gpus = 1; gpus <= std::min(limit, space.gpus_per_node * model.num_layers); ++gpus) {
    for (const Layout& layout : possible_layouts(model, request.engine, gpus, space)) {
      if (layout.dp == 1) shapes.push_back(layout);
    }
  }
  int best = limit + 1;
  for (const Layout& shape : shapes) {
    const int size = shape.tp * shape.pp;
    int most = (best - 1) / size;
    if (space.gpus_per_node % shape.tp != 0) most = std::min(most, space.gpus_per_node / size);
    const int replicas = fewest_replicas(model, request, shape, most);
    if (replicas > 0) best = replicas * size;
  }
  if (best > limit) return std::nullopt;
  const Layout layout = best_layout(model, request, possible_layouts(model, request.engine, best, space));
  return GpuAnswer{layout, plan_memory(model, in_layout(request, layout))};
}

BestLayout<std::int64_t> largest_context(const ModelConfig& model, const PlanRequest& request,
                                         const std::vector<Layout>& layouts) {
  BestLayout<std::int64_t> best{.layout = layouts.front(), .answer = -1};
  for (const Layout& layout : layouts) {
    const std::int64_t context = largest_context(model, in_layout(request, layout));
    if (context > best.answer) best = {layout, context};
  }
  return best;
}

BestLayout<std::optional<double>> smallest_utilization(const ModelConfig& model, const PlanRequest& request,
                                                       const std::vector<Layout>& layouts) {
  constexpr double kStep = 0.001;
  BestLayout<std::optional<double>> best{.layout = layouts.front()};
  for (const Layout& layout : layouts) {
    PlanRequest one = in_layout(request, layout);
    if (best.answer) {  // only a layout that does with less is searched
      one.utilization = *best.answer - kStep;
      if (*one.utilization <= 0 || !enough(model, one)) continue;
    }
    const std::optional<double> share = smallest_utilization(model, one);
    if (share && (!best.answer || *share < *best.answer)) best = {layout, share};
  }
  return best;
}

}  // namespace mla::capacity
