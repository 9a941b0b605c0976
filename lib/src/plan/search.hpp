// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mla/capacity.hpp"

/// Questions that need many plans: which layout, how long, how many GPUs. Exported for mla_tools and the
/// programs.
namespace mla::capacity {

/// Experts are spread whole over all ranks of a stage where attention is replicated and there are enough of
/// them; 0 otherwise.
[[nodiscard]] MLA_EXPORT int default_expert_ranks(const ModelConfig& model, const Layout& layout);

struct LayoutSpace {
  int gpus_per_node = 8;         ///< tp stays inside a node
  bool pipeline = true;          ///< pp > 1 too
  bool context_parallel = true;  ///< dcp > 1 too
};
/// Why a tp group of the layout would cross nodes; empty if none does.
[[nodiscard]] MLA_EXPORT std::string crossing(const Layout& layout, int gpus_per_node);
/// Layouts of exactly `gpus` GPUs that the model can have in this engine; experts are spread whole wherever there
/// are replicas.
[[nodiscard]] MLA_EXPORT std::vector<Layout> possible_layouts(const ModelConfig& model,
                                                              const EngineRules& engine, int gpus,
                                                              const LayoutSpace& space = {});

/// Plans of all layouts, most sequences first; equal ones by longest context, then fewer replicas and stages.
[[nodiscard]] MLA_EXPORT std::vector<MemoryPlan> rank_layouts(const ModelConfig& model,
                                                              const PlanRequest& request,
                                                              const std::vector<Layout>& layouts);

/// The layout that rank_layouts() would put first; `layouts` is not empty.
[[nodiscard]] MLA_EXPORT Layout best_layout(const ModelConfig& model, const PlanRequest& request,
                                            const std::vector<Layout>& layouts);

/// Largest context of which `concurrency` (at least one) sequences fit; 0 if none does.
[[nodiscard]] MLA_EXPORT std::int64_t largest_context(const ModelConfig& model, const PlanRequest& request);

/// Smallest utilization, in steps of 0.001, at which the asked context and concurrency fit; empty if 1 is not
/// enough.
[[nodiscard]] MLA_EXPORT std::optional<double> smallest_utilization(const ModelConfig& model,
                                                                    PlanRequest request);

/// The layout of `layouts` (not empty) that answers best, with its answer. Equal answers: the first.
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

/// Fewest GPUs for the asked context and concurrency, at most `limit`. Empty if that is not enough.
struct GpuAnswer {
  Layout layout;
  MemoryPlan plan;
};
/// The request's layout is kept and its replicas are multiplied (experts spread further).
[[nodiscard]] MLA_EXPORT std::optional<GpuAnswer> fewest_gpus(const ModelConfig& model, PlanRequest request,
                                                              int limit = 1024);
/// Over all layouts of `space`; of several for that number the one that holds most.
[[nodiscard]] MLA_EXPORT std::optional<GpuAnswer> fewest_gpus(const ModelConfig& model,
                                                              const PlanRequest& request,
                                                              const LayoutSpace& space, int limit = 1024);

}  // namespace mla::capacity
