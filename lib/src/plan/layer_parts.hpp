// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// cache_parts() of each layer of a model, worked out once for those that are alike. Everything it was made with must
/// outlive it.
class LayerParts {
 public:
  LayerParts(const ModelConfig& model, const KvFormat& format, const EngineRules& engine, int tp)
      : model_(model), format_(format), engine_(engine), tp_(tp) {}
  [[nodiscard]] const std::vector<CachePart>& of(const LayerCache& layer);

 private:
  const ModelConfig& model_;
  const KvFormat& format_;
  const EngineRules& engine_;
  int tp_;
  std::vector<std::pair<const LayerCache*, std::vector<CachePart>>> known_;
};

}  // namespace mla::capacity
