// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mla/capacity.hpp"
#include "options.hpp"
#include "plan/search.hpp"

/// From the user's words to a planning request.
namespace mla::memcalc {

struct Question {
  ModelConfig model;
  std::string gpu_title;
  std::vector<std::string> warnings;  ///< flags that change nothing here
  std::string why_not, why_not_hint;  ///< nothing can be planned: the rule, and what to do
  int gpus = 1;
  int gpus_per_node = 8;
  capacity::PlanRequest request;  ///< its layout is set only if `layout_given`
  bool layout_given = false;      ///< by --attention tp|dp or any of --tp --dp --dcp --ep
  bool stages_given = false;      ///< by --pp or --stages alone: of the layouts with these stages the best
  std::vector<std::string> layout_flags;  ///< names of those that say something of the layout
  [[nodiscard]] bool narrowed() const { return layout_given || stages_given; }
  capacity::LayoutSpace
      space;  ///< where layouts are looked for: with what these flags give, whatever --gpus is
};

/// Reads models, GPUs and values. Throws mla::Error naming the flag and what is allowed, or saying why_not.
[[nodiscard]] Question read_question(const RequestOptions& options);
/// The same for a model that was read already; `why_not` is left to the caller, who may have other models.
[[nodiscard]] Question read_question(const RequestOptions& options, ModelConfig model);

/// --cache and --cache-v; "auto" as the checkpoint asks, "fp8" as the engine stores it for this model.
[[nodiscard]] capacity::KvFormat cache_format(const RequestOptions& options, const ModelConfig& model,
                                              const capacity::EngineRules& engine);
/// --engine with --mla-storage.
[[nodiscard]] capacity::EngineRules engine_rules(const RequestOptions& options);

/// The layout given by flags, or all of --gpus (with the stages given) that engines would load: what every command looks
/// at.
[[nodiscard]] std::vector<capacity::Layout> candidate_layouts(const Question& question);

/// The one of candidate_layouts that holds most sequences.
[[nodiscard]] capacity::Layout chosen_layout(const Question& question);

/// The model's own maximum. Throws, asking for --context, where its config has none.
[[nodiscard]] std::int64_t longest_context(const ModelConfig& model);

/// A number of ranks, or another small count, given to a flag.
[[nodiscard]] int rank_count(const std::string& text, const char* flag);

/// A model by name, path or "-" (stdin).
[[nodiscard]] ModelConfig read_model(const std::string& what);

}  // namespace mla::memcalc
