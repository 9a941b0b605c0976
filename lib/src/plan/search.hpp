// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/layout_space.hpp"

/// Questions that need many plans: which layout, how long, how many GPUs. Exported for mla_tools and the
/// programs.
namespace mla::capacity {

/// Plans of all layouts: most sequences run at once first, then most that fit, longest context, fewer replicas and
/// stages.
[[nodiscard]] MLA_EXPORT std::vector<MemoryPlan> rank_layouts(const ModelConfig& model,
                                                              const PlanRequest& request,
                                                              const std::vector<Layout>& layouts);

/// The layout that rank_layouts() would put first; `layouts` is not empty.
[[nodiscard]] MLA_EXPORT Layout best_layout(const ModelConfig& model, const PlanRequest& request,
                                            const std::vector<Layout>& layouts);

/// Largest context, at most the model's maximum (without one: the request's), of which `concurrency` (at least one)
/// sequences run at once; 0 if there is none.
[[nodiscard]] MLA_EXPORT std::int64_t largest_context(const ModelConfig& model, const PlanRequest& request);

/// Smallest utilization, in steps of 0.001, at which the asked context and concurrency fit; empty if 1 is not
/// enough.
[[nodiscard]] MLA_EXPORT std::optional<double> smallest_utilization(const ModelConfig& model,
                                                                    PlanRequest request);

/// The layout of `layouts` (not empty) that answers best, with its answer. Of equal answers, and where no layout has
/// one, that of best_layout().
template <class Answer>
struct BestLayout {
  Layout layout;
  Answer answer{};
};
[[nodiscard]] MLA_EXPORT BestLayout<std::int64_t> largest_context(const ModelConfig& model,
                                                                  const PlanRequest& request,
                                                                  const std::vector<Layout>& layouts);
[[nodiscard]] MLA_EXPORT BestLayout<std::optional<double>> smallest_utilization(
    const ModelConfig& model, const PlanRequest& request, const std::vector<Layout>& layouts);

/// Fewest GPUs for the asked context and concurrency, at most `limit`, over all layouts of `space`; of several for
/// that number the one that ranks first. Empty if that is not enough.
struct GpuAnswer {
  Layout layout;
  MemoryPlan plan;
};
[[nodiscard]] MLA_EXPORT std::optional<GpuAnswer> fewest_gpus(const ModelConfig& model,
                                                              const PlanRequest& request,
                                                              const LayoutSpace& space, int limit = 1024);
/// The same among the counts people buy: a part of a node that divides it, or whole nodes.
[[nodiscard]] MLA_EXPORT std::optional<GpuAnswer> fewest_whole_gpus(const ModelConfig& model,
                                                                    const PlanRequest& request,
                                                                    const LayoutSpace& space,
                                                                    int limit = 1024);
/// Where fewest_gpus() has no answer: what comes nearest, the layout of at most `limit` GPUs that ranks first among
/// the largest of each shape. Empty if `space` has no layout for this model.
[[nodiscard]] MLA_EXPORT std::optional<Layout> nearest_layout(const ModelConfig& model,
                                                              const PlanRequest& request,
                                                              const LayoutSpace& space, int limit = 1024);

}  // namespace mla::capacity
