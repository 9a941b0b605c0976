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
  TowerConfig tower;
  tower.layers = vision.required("tower layers", {"vt_num_hidden_layers", "num_hidden_layers"}, kLayers);
  tower.hidden_size = vision.required("tower width", {"vt_hidden_size", "hidden_size"}, kWidth);
  tower.intermediate_size =
      vision.required("tower FFN width", {"vt_intermediate_size", "intermediate_size"}, kWidth);
  tower.patch = vision.required("patch size", {"patch_size"}, {1, 1024});
  tower.positions = vision.required("tower positions", {"init_pos_emb_height"}, {1, 1 << 15}) *
                    vision.required("tower positions", {"init_pos_emb_width"}, {1, 1 << 15});
  const std::vector<std::int64_t> sides = vision.integers("merge_kernel_size", {1, 64});
  if (sides.size() != 2) vision.wrong("merge_kernel_size", "two whole numbers, rows and columns");
  tower.merged_patches = static_cast<int>(sides[0] * sides[1]);
  reading.model->tower = tower;
}

}  // namespace mla
