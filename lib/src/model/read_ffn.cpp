// SPDX-License-Identifier: Apache-2.0
// Which decoder layers have dense feed-forward parts and which have experts.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.hpp"
#include "model/reading.hpp"

namespace mla {
namespace {

using Flags = std::vector<bool>;  // one a decoder layer: has experts

// "3,4,5": Step-3.7 writes its MoE layers as a text.
Flags from_enumeration(const Reading& reading) {
  const int layers = reading.model->num_layers;
  Flags moe(static_cast<std::size_t>(layers), false);
  const std::string list = reading.text.string("moe layers", {"moe_layers_enum"}).value_or("");
  for (const std::string& word : text::split(list, ',')) {
    int layer = -1;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), layer);
    if (failure != std::errc() || end != word.data() + word.size() || layer < 0 || layer >= layers) {
      reading.text.wrong("moe_layers_enum",
                         fmt::format("layer numbers from 0 to {}, with commas", layers - 1));
    }
    moe[static_cast<std::size_t>(layer)] = true;
  }
  return moe;
}

Flags from_types(const Reading& reading) {
  Flags moe;
  for (const std::string& word : reading.text.strings("mlp_layer_types")) {
    if (word != "dense" && word != "sparse" && word != "moe") {
      reading.text.wrong("mlp_layer_types", "a list of 'dense' and 'sparse'");
    }
    moe.push_back(word != "dense");
  }
  return moe;
}

void check_length(const Reading& reading, std::string_view key, const Flags& flags) {
  const auto layers = static_cast<std::size_t>(reading.model->num_layers);
  const auto most = layers + static_cast<std::size_t>(reading.model->num_mtp_layers);
  if (flags.size() < layers || flags.size() > most) {
    reading.text.wrong(key, fmt::format("one entry for each of the {} layers", layers));
  }
}

// Qwen and Llama-4 count periods from the end of a group, DeepSeek from layer 0.
Flags from_period(const Reading& reading) {
  const Fields& text = reading.text;
  const MoeConfig& moe = *reading.model->moe;
  const int layers = reading.model->num_layers;
  const auto step =
      text.integer("decoder_sparse_step", {"decoder_sparse_step", "interleave_moe_layer_step"}, kLayers);
  const std::vector<std::int64_t> dense_only = text.integers("mlp_only_layers", {0, layers});
  const auto period = text.integer("expert_layer_period", {"expert_layer_period"}, kLayers);
  const auto offset = text.integer("expert_layer_offset", {"expert_layer_offset"}, {0, 4096}).value_or(0);
  Flags flags;
  for (int i = 0; i < layers; ++i) {
    bool experts = i >= moe.first_dense_layers && i % moe.moe_layer_frequency == 0;
    if (step) experts = (i + 1) % *step == 0;
    if (period) experts = i % *period == offset % *period;
    if (std::find(dense_only.begin(), dense_only.end(), i) != dense_only.end()) experts = false;
    flags.push_back(experts);
  }
  return flags;
}

void read_first_dense(Reading& reading) {
  const Fields part = reading.expert_fields();
  MoeConfig& moe = *reading.model->moe;
  moe.first_dense_layers = part.integer_or(
      "first_dense_layers",
      {"first_k_dense_replace", "num_dense_layers", "n_dense_layers", "moe_layer_start_index"},
      {0, reading.model->num_layers}, 0, "absent: none");
  const json::Value* frequency = part.get("moe_layer_freq");
  if (frequency != nullptr && frequency->get_if<json::Array>() == nullptr) {
    moe.moe_layer_frequency =
        part.integer_or("moe_layer_frequency", {"moe_layer_freq"}, kLayers, 1, "default: every layer");
  } else if (part.has("route_every_n")) {
    moe.moe_layer_frequency =
        part.integer_or("moe_layer_frequency", {"route_every_n"}, kLayers, 1, "default: every layer");
  }
}

Flags moe_layers(Reading& reading) {
  const Fields& text = reading.text;
  if (text.has("moe_layers_enum")) return from_enumeration(reading);
  if (text.has("mlp_layer_types")) {
    const Flags flags = from_types(reading);
    check_length(reading, "mlp_layer_types", flags);
    return flags;
  }
  const json::Value* frequency = text.get("moe_layer_freq");
  if (frequency != nullptr && frequency->get_if<json::Array>() != nullptr) {
    Flags flags;
    for (const std::int64_t flag : text.integers("moe_layer_freq", {0, 1})) flags.push_back(flag == 1);
    check_length(reading, "moe_layer_freq", flags);
    return flags;
  }
  return from_period(reading);
}

int dense_width(const Reading& reading) {
  const auto own =
      reading.text.integer("dense width", {"intermediate_size_mlp", "dense_intermediate_size"}, kWidth);
  return own ? static_cast<int>(*own) : reading.model->intermediate_size;
}

// Nemotron-H: a block is attention, recurrence, MLP or experts, never two of them.
void add_blocks(ModelConfig& model, const std::vector<Block>& blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    LayerFfn ffn;
    ffn.model_layer = static_cast<int>(i);
    ffn.moe = blocks[i] == Block::kMoe;
    ffn.dense_count = blocks[i] == Block::kMlp ? 1 : 0;
    ffn.dense_intermediate_size = ffn.dense_count * model.intermediate_size;
    model.ffn.push_back(ffn);
  }
}

// The layers of MTP modules: experts where the last decoder layer has them.
void add_mtp(Reading& reading) {
  ModelConfig& model = *reading.model;
  const std::vector<Block> blocks = separate_mtp_blocks(reading);
  for (int i = 0; i < model.num_mtp_layers; ++i) {
    LayerFfn ffn = model.ffn.empty() ? LayerFfn{} : model.ffn[static_cast<std::size_t>(model.num_layers - 1)];
    ffn.mtp = true;
    ffn.model_layer = model.num_layers + i;
    if (!blocks.empty()) {
      ffn.moe = std::count(blocks.begin(), blocks.end(), Block::kMoe) > 0;
      ffn.dense_count = static_cast<int>(std::count(blocks.begin(), blocks.end(), Block::kMlp));
      ffn.dense_intermediate_size = ffn.dense_count > 0 ? model.intermediate_size : 0;
    }
    model.ffn.push_back(ffn);
  }
}

}  // namespace

void read_ffn(Reading& reading) {
  ModelConfig& model = *reading.model;
  if (!model.ffn.empty()) return;  // a NAS model's blocks said it
  if (model.moe) read_first_dense(reading);
  if (const std::vector<Block> blocks = separate_blocks(reading); !blocks.empty()) {
    if (!model.moe && std::count(blocks.begin(), blocks.end(), Block::kMoe) > 0) {
      reading.text.missing({"n_routed_experts"}, "the list of blocks names layers of experts");
    }
    add_blocks(model, blocks);
    return add_mtp(reading);
  }
  const bool longcat = model.moe && reading.is_longcat();
  // Gemma-4-26B: a dense part beside the experts in every layer.
  const bool beside = reading.text.boolean("dense beside experts", {"enable_moe_block"}).value_or(false);
  const Flags moe =
      model.moe ? moe_layers(reading) : Flags(static_cast<std::size_t>(model.num_layers), false);
  const int width = dense_width(reading);
  for (int i = 0; i < model.num_layers; ++i) {
    LayerFfn ffn;
    ffn.model_layer = i;
    ffn.moe = moe[static_cast<std::size_t>(i)];
    ffn.dense_count = longcat ? 2 : (!ffn.moe || beside) ? 1 : 0;
    ffn.dense_intermediate_size = ffn.dense_count > 0 ? width : 0;
    model.ffn.push_back(ffn);
  }
  if (longcat) reading.text.note("ffn", "2 dense and experts a layer", "rule of LongCat");
  add_mtp(reading);
}

}  // namespace mla
