// SPDX-License-Identifier: Apache-2.0
#include "plan/drafter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mla/error.hpp"

namespace mla::capacity {

void add_drafter(ModelConfig& model, int layers) {
  const auto full = std::find_if(model.layers.rbegin(), model.layers.rend(), [](const LayerCache& layer) {
    return !layer.mtp && layer.window == 0 && layer.kind != AttentionKind::kRecurrent &&
           layer.kind != AttentionKind::kNone && layer.kind != AttentionKind::kCompressed;
  });
  if (full == model.layers.rend()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no full-length attention layer that a drafter could copy", model.name));
  }
  LayerCache drafted = *full;
  for (int i = 0; i < layers; ++i) {
    drafted.model_layer = model.num_layers + model.num_mtp_layers;
    drafted.mtp = true;
    model.layers.push_back(drafted);
    model.ffn.push_back({.model_layer = drafted.model_layer,
                         .dense_count = 1,
                         .dense_intermediate_size = model.intermediate_size,
                         .mtp = true});
    ++model.num_mtp_layers;
  }
}

void drop_prediction_layers(ModelConfig& model) {
  std::erase_if(model.layers, [](const LayerCache& layer) { return layer.mtp; });
  std::erase_if(model.ffn, [](const LayerFfn& ffn) { return ffn.mtp; });
  model.num_mtp_layers = 0;
}

}  // namespace mla::capacity
