// SPDX-License-Identifier: Apache-2.0
// The vision tower of a multimodal model, where its config has a form whose weights are known.
#include "model/reading.hpp"

namespace mla {
namespace {

/// MoonViT (Kimi-VL, Kimi-K2.5): plain transformer layers over patches, and a projector of two matrices.
bool is_moonvit(const Fields& vision) {
  const bool learned_positions = vision.has("init_pos_emb_height") && vision.has("merge_kernel_size");
  // Kimi-K3's projector and norms are of another form.
  return learned_positions &&
         vision.string("projector", {"mm_projector_type"}).value_or("") != "patchmergerv2";
}

}  // namespace

void read_tower(Reading& reading) {
  const json::Value* value = reading.outer.get("vision_config");
  if (value == nullptr || value->get_if<json::Object>() == nullptr) return;
  const Fields vision = *reading.outer.nested("vision_config");
  if (!is_moonvit(vision)) return;
  const auto layers = vision.integer("tower layers", {"vt_num_hidden_layers", "num_hidden_layers"}, kLayers);
  const auto width = vision.integer("tower width", {"vt_hidden_size", "hidden_size"}, kWidth);
  const auto ffn = vision.integer("tower FFN width", {"vt_intermediate_size", "intermediate_size"}, kWidth);
  const auto patch = vision.integer("patch size", {"patch_size"}, {1, 1024});
  const auto rows = vision.integer("tower positions", {"init_pos_emb_height"}, {1, 1 << 15});
  const auto columns = vision.integer("tower positions", {"init_pos_emb_width"}, {1, 1 << 15});
  const std::vector<std::int64_t> merged = vision.integers("merge_kernel_size", {1, 64});
  // A tower that is not described whole is left out, and a plan says so.
  if (!layers || !width || !ffn || !patch || !rows || !columns || merged.size() != 2) return;
  reading.model->tower = TowerConfig{.layers = static_cast<int>(*layers),
                                     .hidden_size = static_cast<int>(*width),
                                     .intermediate_size = static_cast<int>(*ffn),
                                     .patch = static_cast<int>(*patch),
                                     .positions = static_cast<int>(*rows * *columns),
                                     .merged_patches = static_cast<int>(merged[0] * merged[1])};
}

}  // namespace mla
