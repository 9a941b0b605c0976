// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "mla/capacity.hpp"
#include "mla/error.hpp"

namespace mla::capacity {

StoredMla stored_mla(const ModelConfig& model, const EngineRules& engine) {
  if (!model.mla) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} has MLA layers but no MLA widths", model.name));
  }
  StoredMla stored{.storage = engine.mla_storage,
                   .head_dim_k = model.mla->head_width(),
                   .head_dim_v = model.mla->v_head_dim};
  const auto expanded = std::ranges::find(engine.expanded, model.model_type, &ExpandedClass::model_type);
  if (expanded != engine.expanded.end()) {
    stored.storage = MlaStorage::kExpanded;
    if (expanded->pad_v) stored.head_dim_v = std::max(stored.head_dim_v, stored.head_dim_k);
    stored.why = expanded->why;
  } else if (stored.storage == MlaStorage::kExpanded) {
    stored.head_dim_k = std::max(stored.head_dim_k, engine.expanded_width);
    stored.head_dim_v = std::max(stored.head_dim_v, engine.expanded_width);
    stored.why = engine.no_latent;
  }
  return stored;
}

bool caches_latent(const ModelConfig& model, const EngineRules& engine) {
  return model.mla && model.count(AttentionKind::kMla) > 0 &&
         stored_mla(model, engine).storage != MlaStorage::kExpanded;
}

}  // namespace mla::capacity
