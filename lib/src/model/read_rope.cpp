// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "model/reading.hpp"

namespace mla {
namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;

// rope_scaling, or rope_parameters of transformers 5, which may hold one block a kind of layer (Gemma-3, -4).
std::optional<Fields> scaling_block(const Reading& reading) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    std::optional<Fields> block = reading.text.nested(key);
    if (!block) continue;
    for (const char* kind : {"full_attention", "global"}) {
      if (auto inner = block->nested(kind)) return inner;
    }
    return block;
  }
  return std::nullopt;
}

// A number, or a list with one a layer (Step-3.7), whose first is taken.
std::optional<double> read_theta(const Fields& fields) {
  for (const char* key : {"rope_theta", "rotary_emb_base"}) {
    const json::Value* value = fields.get(key);
    if (value == nullptr || value->is_null()) continue;
    const json::Array* list = value->get_if<json::Array>();
    if (list == nullptr) return fields.real("rope_theta", {key}, 0.0, kMaxTheta);
    if (list->empty()) fields.wrong(key, "a number, or a list with one a layer");
    const json::Value first(json::Object{{key, list->front()}});
    const Fields one(first, fields.origin(), fields.path(""));
    fields.note("rope_theta", "the first of a list", fields.path(key));
    return one.real("rope_theta", {key}, 0.0, kMaxTheta);
  }
  return std::nullopt;
}

void read_yarn(const Reading& reading, const Fields& block) {
  RopeParameters& rope = reading.model->rope;
  rope.yarn = true;
  const auto factor = block.real("yarn factor", {"factor"}, 1.0, kMaxFactor);
  if (!factor) block.missing({"factor"}, "YaRN needs it");
  rope.factor = *factor;
  const auto original = block.integer("original_max_position", {"original_max_position_embeddings"}, kTokens);
  if (original) {
    rope.original_max_position = *original;
  } else if (reading.model->max_position > 0) {
    rope.original_max_position = reading.model->max_position;
    block.note("original_max_position", fmt::format("{}", rope.original_max_position),
               "default of transformers: max_position_embeddings");
  } else {
    block.missing({"original_max_position_embeddings"}, "YaRN needs it");
  }
  rope.beta_fast = block.real("beta_fast", {"beta_fast", "beta"}, 0.0, kMaxFactor).value_or(rope.beta_fast);
  rope.beta_slow = block.real("beta_slow", {"beta_slow", "alpha"}, 0.0, kMaxFactor).value_or(rope.beta_slow);
  rope.mscale = block.real("mscale", {"mscale"}, 0.0, kMaxFactor);
  rope.mscale_all_dim = block.real("mscale_all_dim", {"mscale_all_dim"}, 0.0, kMaxFactor);
  rope.attention_factor = block.real("attention_factor", {"attention_factor"}, 0.0, kMaxFactor);
  // Mistral: no amplitude but the one its own llama_4_scaling gives.
  if (block.boolean("apply_scale", {"apply_scale"}) == std::optional(false)) rope.attention_factor = 1.0;
}

void read_dim(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  if (reading.family == AttentionFamily::kMla) {
    model.rope.dim = model.mla->qk_rope_head_dim;
    return;
  }
  if (reading.family == AttentionFamily::kCompressed) {
    model.rope.dim = model.compressed->rope_head_dim;
    return;
  }
  if (const auto width = text.integer("rope dim", {"rotary_dim"}, {0, 1 << 16})) {
    model.rope.dim = static_cast<int>(*width);
  } else {
    model.rope.dim = static_cast<int>(std::lround(model.head_dim * model.partial_rotary_factor)) / 2 * 2;
  }
}

}  // namespace

void read_rope(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  const std::optional<Fields> block = reading.params_json ? text.nested("yarn") : scaling_block(reading);
  const std::optional<double> theta = read_theta(text);
  model.rope.theta = theta ? *theta : (block ? read_theta(*block) : std::nullopt).value_or(model.rope.theta);

  const Keys factors = {"partial_rotary_factor", "rotary_pct"};
  const Fields& rotary = block && !text.has_any(factors) ? *block : text;
  model.partial_rotary_factor = rotary.real("partial_rotary_factor", factors, 0.0, 1.0).value_or(1.0);

  model.rope_type = "default";
  if (block) {
    // "type" is the old name; transformers writes both.
    if (reading.params_json) {
      model.rope_type = "yarn";
    } else {
      const char* key = block->has("rope_type") ? "rope_type" : "type";
      model.rope_type = block->string("rope_type", {key}).value_or("default");
    }
    if (model.rope_type == "yarn" || model.rope_type == "deepseek_yarn") read_yarn(reading, *block);
  }
  // DeepSeek rotates neighbouring pairs; other classes, and MiniCPM3 among the MLA ones, the two halves.
  const bool neighbours = reading.family != AttentionFamily::kHeads && !reading.is_type("minicpm3");
  const bool interleaved = text.boolean("rope_interleave", {"rope_interleave"}).value_or(neighbours);
  model.rope_layout = interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit;
  read_dim(reading);
}

}  // namespace mla
