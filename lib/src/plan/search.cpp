// SPDX-License-Identifier: Apache-2.0
#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "mla/error.hpp"
#include "plan/plan_request.hpp"

namespace mla::capacity {
namespace {

void add_context_parallel(std::vector<Layout>& layouts, const Layout& base, const ModelConfig& model) {
  for (int dcp = 2; dcp <= base.tp; ++dcp) {
    if (base.tp % dcp != 0) continue;
    Layout layout = base;
    layout.dcp = dcp;
    if (possible(layout, model)) layouts.push_back(layout);
  }
}

std::int64_t wanted(const PlanRequest& request) {
  return std::max<std::int64_t>(1, request.concurrency);
}

}  // namespace

int default_expert_ranks(const ModelConfig& model, const Layout& layout) {
  const int ranks = layout.tp * layout.dp;
  const bool spread = layout.dp > 1 && model.moe && model.moe->num_experts >= ranks;
  return spread ? ranks : 0;
}

std::vector<Layout> possible_layouts(const ModelConfig& model, int gpus, const LayoutSpace& space) {
  if (gpus < 1) throw Error(ErrorCode::kInvalidArgument, fmt::format("{} GPUs: at least 1 is needed", gpus));
  std::vector<Layout> layouts;
  for (int pp = 1; pp <= (space.pipeline ? std::min(gpus, model.num_layers) : 1); ++pp) {
    if (gpus % pp != 0) continue;
    for (int tp = 1; tp <= std::min(gpus / pp, space.gpus_per_node); ++tp) {
      if (gpus / pp % tp != 0) continue;
      Layout layout{.tp = tp, .dp = gpus / pp / tp, .pp = pp};
      layout.ep = default_expert_ranks(model, layout);
      if (!possible(layout, model)) continue;
      layouts.push_back(layout);
      if (space.context_parallel) add_context_parallel(layouts, layout, model);
    }
  }
  return layouts;
}

std::vector<MemoryPlan> rank_layouts(const ModelConfig& model, const PlanRequest& request,
                                     const std::vector<Layout>& layouts) {
  std::vector<MemoryPlan> plans;
  for (const Layout& layout : layouts) {
    PlanRequest one = request;
    one.layout = layout;
    plans.push_back(plan_memory(model, one));
  }
  const auto rank = [](const MemoryPlan& plan) {
    return std::tuple(-plan.sequences, -plan.longest_context, plan.layout.pp, plan.layout.dp,
                      plan.layout.dcp);
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const MemoryPlan& a, const MemoryPlan& b) { return rank(a) < rank(b); });
  return plans;
}

std::int64_t largest_context(const ModelConfig& model, PlanRequest request) {
  std::int64_t low = 0;
  std::int64_t high = std::max(model.max_position, request.context);
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    request.context = middle;
    if (plan_memory(model, request).sequences >= wanted(request)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::optional<GpuAnswer> fewest_gpus(const ModelConfig& model, PlanRequest request, int limit) {
  const int step = request.layout.tp * request.layout.pp;
  for (int dp = 1; dp * step <= limit; ++dp) {
    request.layout.dp = dp;
    request.layout.ep = default_expert_ranks(model, request.layout);
    if (!possible(request.layout, model)) continue;
    MemoryPlan plan = plan_memory(model, request);
    if (plan.sequences >= wanted(request)) return GpuAnswer{request.layout, std::move(plan)};
  }
  return std::nullopt;
}

std::optional<double> smallest_utilization(const ModelConfig& model, PlanRequest request) {
  constexpr int kSteps = 1000;
  const auto fits = [&](int step) {
    request.utilization = static_cast<double>(step) / kSteps;
    return plan_memory(model, request).sequences >= wanted(request);
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
  for (int gpus = 1; gpus <= limit; ++gpus) {
    const std::vector<Layout> layouts = possible_layouts(model, gpus, space);
    if (layouts.empty()) continue;
    MemoryPlan best = std::move(rank_layouts(model, request, layouts).front());
    if (best.sequences >= wanted(request)) return GpuAnswer{best.layout, std::move(best)};
  }
  return std::nullopt;
}

BestLayout<std::int64_t> largest_context(const ModelConfig& model, const PlanRequest& request,
                                         const std::vector<Layout>& layouts) {
  BestLayout<std::int64_t> best{.layout = layouts.front(), .answer = -1};
  for (const Layout& layout : layouts) {
    PlanRequest one = request;
    one.layout = layout;
    const std::int64_t context = largest_context(model, one);
    if (context > best.answer) best = {layout, context};
  }
  return best;
}

BestLayout<std::optional<double>> smallest_utilization(const ModelConfig& model, const PlanRequest& request,
                                                       const std::vector<Layout>& layouts) {
  BestLayout<std::optional<double>> best{.layout = layouts.front()};
  for (const Layout& layout : layouts) {
    PlanRequest one = request;
    one.layout = layout;
    const std::optional<double> share = smallest_utilization(model, one);
    if (share && (!best.answer || *share < *best.answer)) best = {layout, share};
  }
  return best;
}

}  // namespace mla::capacity
