// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "mla/model.hpp"

namespace mla {
namespace {

std::string windows_of(const ModelConfig& model) {
  const auto windowed = std::count_if(model.layers.begin(), model.layers.end(),
                                      [](const LayerCache& layer) { return layer.window > 0 && !layer.mtp; });
  return windowed == 0 ? std::string()
                       : fmt::format("; {} of {} layers have a sliding window, which is another thing",
                                     windowed, model.layers.size());
}

}  // namespace

std::string_view name_of(AttentionKind kind) noexcept {
  switch (kind) {
    case AttentionKind::kMha:
      return "MHA";
    case AttentionKind::kGqa:
      return "GQA";
    case AttentionKind::kMqa:
      return "MQA";
    case AttentionKind::kMla:
      return "MLA";
    case AttentionKind::kCompressed:
      return "compressed";
    case AttentionKind::kRecurrent:
      return "recurrent";
    case AttentionKind::kNone:
      return "none";
  }
  return "?";
}

std::string_view name_of(RecurrentKind kind) noexcept {
  switch (kind) {
    case RecurrentKind::kKda:
      return "Kimi delta attention";
    case RecurrentKind::kGatedDelta:
      return "gated delta net";
    case RecurrentKind::kMamba1:
      return "Mamba";
    case RecurrentKind::kMamba2:
      return "Mamba-2";
    case RecurrentKind::kLightning:
      return "lightning attention";
  }
  return "?";
}

Finding is_mla(const ModelConfig& model) {
  if (model.mla) {
    const MlaDims& dims = *model.mla;
    return {true, fmt::format("{} of {} caches are latent rows of kv_lora_rank {} + qk_rope_head_dim {}",
                              model.count(AttentionKind::kMla),
                              model.layers.size() - static_cast<std::size_t>(std::count_if(
                                                        model.layers.begin(), model.layers.end(),
                                                        [](const LayerCache& layer) { return layer.mtp; })),
                              dims.kv_lora_rank, dims.qk_rope_head_dim)};
  }
  if (model.compressed) {
    return {false,
            fmt::format("one KV head of {}, entries compressed as compress_ratios says: neither MLA nor GQA",
                        model.compressed->head_dim)};
  }
  for (const FieldNote& note : model.notes) {
    if (note.field == "use_mla" && note.value == "false")
      return {false, fmt::format("{} is false", note.from)};
  }
  for (const LayerCache& layer : model.layers) {
    if (layer.kv_heads > 0) {
      return {false, fmt::format("no kv_lora_rank under any of its names; {} with {} KV heads of {}",
                                 name_of(layer.kind), layer.kv_heads, layer.head_dim_k)};
    }
  }
  return {false, "no kv_lora_rank under any of its names, and no layer keeps KV heads"};
}

Finding is_sparse(const ModelConfig& model) {
  if (!model.indexer)
    return {false, "no index_topk: every query reads every key it may see" + windows_of(model)};
  const auto own = std::count_if(model.layers.begin(), model.layers.end(),
                                 [](const LayerCache& layer) { return layer.indexer && !layer.mtp; });
  return {true, fmt::format("index_topk {}: an indexer on {} of {} layers picks the keys a query reads{}",
                            model.indexer->topk, own, model.num_layers, windows_of(model))};
}

}  // namespace mla
