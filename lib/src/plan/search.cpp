// SPDX-License-Identifier: Apache-2.0
#include "plan/search.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "plan/holding.hpp"
#include "plan/plan_request.hpp"
#include "plan/refused_cuts.hpp"

namespace mla::capacity {
namespace {

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
  return Holding(model, request).at_once() >= wanted(request);
}

/// By what layouts are ranked; less is better.
auto rank_of(std::int64_t at_once, std::int64_t sequences, std::int64_t longest, const Layout& layout) {
  return std::tuple(-at_once, -sequences, -longest, layout.pp, layout.dp, layout.dcp);
}

auto rank_of(const ModelConfig& model, const PlanRequest& request, const Layout& layout) {
  Holding holding(model, in_layout(request, layout));
  return rank_of(holding.at_once(), holding.sequences(), holding.longest_context(), layout);
}

/// One replica of each shape, the smallest first.
std::vector<Layout> shapes_by_size(const ModelConfig& model, const PlanRequest& request,
                                   const LayoutSpace& space, int limit) {
  std::vector<Layout> shapes = replica_shapes(model, request.engine, limit, space);
  std::ranges::stable_sort(shapes, {}, &Layout::gpus);
  return shapes;
}

/// Numbers of replicas of `shape`, at most `most`, in ascending order: those an engine would load.
std::vector<int> replica_counts(const ModelConfig& model, const PlanRequest& request, const Layout& shape,
                                const LayoutSpace& space, int most) {
  const int first = space.dp.value_or(1);
  const int last = std::min(most, space.dp ? first : request.engine.replicas ? most : 1);
  std::vector<int> counts;
  for (int dp = first; dp <= last; ++dp) {
    const Layout layout = with_replicas(shape, dp, model, request.engine, space);
    if (crossing(layout, space.gpus_per_node).empty() && refused_cuts(model, request, layout).empty() &&
        possible(layout, model, request.engine)) {
      counts.push_back(dp);
    }
  }
  return counts;
}

/// Fewest replicas of `shape`, at most `most`, that hold what is wanted; 0 if none do. More replicas never hold
/// less: experts and caches only spread further. One GPU alone is the exception, as it needs no memory for
/// communication.
int fewest_replicas(const ModelConfig& model, const PlanRequest& request, const Layout& shape,
                    const LayoutSpace& space, int most) {
  const std::vector<int> counts = replica_counts(model, request, shape, space, most);
  const auto holds = [&](int dp) {
    return enough(model, in_layout(request, with_replicas(shape, dp, model, request.engine, space)));
  };
  if (counts.empty()) return 0;
  if (shape.tp * shape.pp == 1 && counts.front() == 1 && holds(1)) return 1;
  if (!holds(counts.back())) return 0;
  return *std::ranges::partition_point(counts, [&](int dp) { return !holds(dp); });
}

}  // namespace

std::vector<MemoryPlan> rank_layouts(const ModelConfig& model, const PlanRequest& request,
                                     const std::vector<Layout>& layouts) {
  std::vector<MemoryPlan> plans;
  for (const Layout& layout : layouts) plans.push_back(plan_memory(model, in_layout(request, layout)));
  const auto rank = [](const MemoryPlan& plan) {
    return rank_of(plan.at_once, plan.sequences, plan.longest_context, plan.layout);
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const MemoryPlan& a, const MemoryPlan& b) { return rank(a) < rank(b); });
  return plans;
}

Layout best_layout(const ModelConfig& model, const PlanRequest& request, const std::vector<Layout>& layouts) {
  const Layout* best = &layouts.front();
  auto least = rank_of(model, request, *best);
  for (const Layout& layout : layouts) {
    const auto its = rank_of(model, request, layout);
    if (!(its < least)) continue;
    least = its;
    best = &layout;
  }
  return *best;
}

std::int64_t largest_context(const ModelConfig& model, const PlanRequest& request) {
  Holding holding(model, request);
  std::int64_t low = 0;
  std::int64_t high = model.max_position > 0 ? model.max_position : request.context;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (holding.at_once(middle) >= wanted(request)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
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
  // Later shapes are only asked whether they do with less than the best so far.
  int best = limit + 1;
  for (const Layout& shape : shapes_by_size(model, request, space, limit)) {
    const int size = shape.tp * shape.pp;
    const int replicas = fewest_replicas(model, request, shape, space, (best - 1) / size);
    if (replicas > 0) best = replicas * size;
  }
  if (best > limit) return std::nullopt;
  const Layout layout = best_layout(model, request, possible_layouts(model, request, best, space));
  return GpuAnswer{layout, plan_memory(model, in_layout(request, layout))};
}

std::optional<GpuAnswer> fewest_whole_gpus(const ModelConfig& model, const PlanRequest& request,
                                           const LayoutSpace& space, int limit) {
  const int node = space.gpus_per_node;
  const auto whole = [&](std::int64_t gpus) { return gpus < node ? node % gpus == 0 : gpus % node == 0; };
  std::optional<GpuAnswer> least = fewest_gpus(model, request, space, limit);
  if (!least || whole(least->layout.gpus())) return least;
  for (int gpus = static_cast<int>(least->layout.gpus()) + 1; gpus <= limit; ++gpus) {
    if (!whole(gpus)) continue;
    const std::vector<Layout> layouts = possible_layouts(model, request, gpus, space);
    if (layouts.empty()) continue;
    const PlanRequest best = in_layout(request, best_layout(model, request, layouts));
    if (enough(model, best)) return GpuAnswer{best.layout, plan_memory(model, best)};
  }
  return std::nullopt;
}

std::optional<Layout> nearest_layout(const ModelConfig& model, const PlanRequest& request,
                                     const LayoutSpace& space, int limit) {
  std::vector<Layout> largest;
  for (const Layout& shape : shapes_by_size(model, request, space, limit)) {
    const std::vector<int> counts =
        replica_counts(model, request, shape, space, limit / (shape.tp * shape.pp));
    if (!counts.empty()) largest.push_back(with_replicas(shape, counts.back(), model, request.engine, space));
  }
  if (largest.empty()) return std::nullopt;
  return best_layout(model, request, largest);
}

BestLayout<std::int64_t> largest_context(const ModelConfig& model, const PlanRequest& request,
                                         const std::vector<Layout>& layouts) {
  std::int64_t most = 0;
  std::vector<Layout> best = layouts;
  for (const Layout& layout : layouts) {
    const std::int64_t context = largest_context(model, in_layout(request, layout));
    if (context < most || context == 0) continue;
    if (context > most) best.clear();
    most = context;
    best.push_back(layout);
  }
  PlanRequest there = request;
  if (most > 0) there.context = most;
  return {best_layout(model, there, best), most};
}

BestLayout<std::optional<double>> smallest_utilization(const ModelConfig& model, const PlanRequest& request,
                                                       const std::vector<Layout>& layouts) {
  constexpr double kStep = 0.001;
  std::optional<double> least;
  std::vector<Layout> best = layouts;
  for (const Layout& layout : layouts) {
    PlanRequest one = in_layout(request, layout);
    if (least) {
      one.utilization = *least;
      if (!enough(model, one)) continue;
      one.utilization = *least - kStep;  // only a layout that does with less is searched
      if (*one.utilization <= 0 || !enough(model, one)) {
        best.push_back(layout);
        continue;
      }
    }
    const std::optional<double> share = smallest_utilization(model, one);
    if (!share) continue;
    least = share;
    best = {layout};
  }
  PlanRequest there = request;
  if (least) there.utilization = least;
  return {best_layout(model, there, best), least};
}

}  // namespace mla::capacity
