// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mla/capacity.hpp"

/// Which layouts a question looks at. Exported for mla_tools and the programs.
namespace mla::capacity {

/// Experts are spread whole over all ranks of a stage where attention is replicated and there are enough of
/// them; 0 otherwise.
[[nodiscard]] MLA_EXPORT int default_expert_ranks(const ModelConfig& model, const Layout& layout);

struct LayoutSpace {
  int gpus_per_node = 8;                             ///< tp stays inside a node
  bool pipeline = true;                              ///< pp > 1 too
  bool context_parallel = true;                      ///< dcp > 1 too
  bool split_heads = false;                          ///< tp even of an engine that spreads layers
  std::optional<int> tp{}, dp{}, pp{}, dcp{}, ep{};  ///< those given: only layouts with just them
  std::vector<int> stage_layers{};                   ///< those of `pp`, where they are given
};

/// Why a tp group of the layout would cross nodes; empty if none does.
[[nodiscard]] MLA_EXPORT std::string crossing(const Layout& layout, int gpus_per_node);

/// One replica of every shape that the model can have in this engine, of at most `gpus` GPUs.
[[nodiscard]] MLA_EXPORT std::vector<Layout> replica_shapes(const ModelConfig& model,
                                                            const EngineRules& engine, int gpus,
                                                            const LayoutSpace& space);

/// `shape` with `dp` replicas, experts spread as the space says, else as they are by default.
[[nodiscard]] MLA_EXPORT Layout with_replicas(Layout shape, int dp, const ModelConfig& model,
                                              const EngineRules& engine, const LayoutSpace& space);

/// Layouts of exactly `gpus` GPUs that the model can have in this engine; experts are spread whole wherever there
/// are replicas.
[[nodiscard]] MLA_EXPORT std::vector<Layout> possible_layouts(const ModelConfig& model,
                                                              const EngineRules& engine, int gpus,
                                                              const LayoutSpace& space = {});
/// Those of them that engines would load with the request's weights (refused_cuts); all, if they refuse all.
[[nodiscard]] MLA_EXPORT std::vector<Layout> possible_layouts(const ModelConfig& model,
                                                              const PlanRequest& request, int gpus,
                                                              const LayoutSpace& space = {});

}  // namespace mla::capacity
