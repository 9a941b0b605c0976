// SPDX-License-Identifier: Apache-2.0
#include "plan/layer_parts.hpp"

#include <algorithm>
#include <tuple>

namespace mla::capacity {
namespace {

/// Whether two layers keep the same.
bool alike(const LayerCache& a, const LayerCache& b) {
  const auto fields = [](const LayerCache& layer) {
    return std::tie(layer.kind, layer.q_heads, layer.kv_heads, layer.head_dim_k, layer.head_dim_v,
                    layer.window, layer.chunked, layer.indexer, layer.compress_ratio, layer.state_bytes);
  };
  return fields(a) == fields(b);
}

}  // namespace

const std::vector<CachePart>& LayerParts::of(const LayerCache& layer) {
  const auto known = std::ranges::find_if(known_, [&](const auto& one) { return alike(*one.first, layer); });
  if (known != known_.end()) return known->second;
  known_.emplace_back(&layer, cache_parts(model_, layer, format_, engine_, tp_));
  return known_.back().second;
}

}  // namespace mla::capacity
