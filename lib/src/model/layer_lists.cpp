// SPDX-License-Identifier: Apache-2.0
// Layer roles that the file spells out, one entry a layer.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "model/reading.hpp"

namespace mla {
namespace {

using Roles = std::vector<LayerRole>;

struct Word {
  std::string_view name;
  LayerRole role;
};

constexpr Word kWords[] = {
    {"full_attention", LayerRole::kFull},
    {"attention", LayerRole::kFull},
    {"global_attention", LayerRole::kFull},
    {"deepseek_sparse_attention", LayerRole::kFull},
    {"sliding_attention", LayerRole::kWindow},
    {"local_attention", LayerRole::kWindow},
    {"chunked_attention", LayerRole::kChunk},
    {"linear_attention", LayerRole::kRecurrent},
    {"mamba", LayerRole::kRecurrent},
    {"mamba2", LayerRole::kRecurrent},
    {"kda", LayerRole::kRecurrent},
};

LayerRole role_of(const Fields& text, std::string_view key, const std::string& word) {
  std::vector<std::string> allowed;
  for (const Word& known : kWords) {
    if (known.name == word) return known.role;
    allowed.emplace_back(known.name);
  }
  text.wrong(key, fmt::format("a list of {}, not {}", text::join_or(allowed), text::quoted(word)));
}

Roles from_words(const Reading& reading, std::string_view key) {
  Roles roles;
  for (const std::string& word : reading.text.strings(key)) roles.push_back(role_of(reading.text, key, word));
  return roles;
}

// Step-3.7's layer_types go on over the MTP layers; anything else is one entry a decoder layer.
void check_length(const Reading& reading, std::string_view key, std::size_t entries, bool mtp_too) {
  const ModelConfig& model = *reading.model;
  const auto layers = static_cast<std::size_t>(model.num_layers);
  if (entries == layers) return;
  if (mtp_too && entries == layers + static_cast<std::size_t>(model.num_mtp_layers)) return;
  reading.text.wrong(key, fmt::format("one entry for each of the {} layers", layers));
}

// linear_attn_config of Kimi-Linear and Kimi-K3 counts layers from 1, that of GLM-5.3 from 0; together the
// two lists hold every layer once, which tells them apart.
Roles from_numbers(const Reading& reading, const Fields& config) {
  const auto layers = static_cast<std::int64_t>(reading.model->num_layers);
  const Range numbers{0, layers};
  const std::vector<std::int64_t> full = config.integers("full_attn_layers", numbers);
  const std::vector<std::int64_t> linear = config.integers("kda_layers", numbers);
  if (full.empty() && linear.empty()) return {};
  std::vector<std::int64_t> all = full;
  all.insert(all.end(), linear.begin(), linear.end());
  std::sort(all.begin(), all.end());
  const std::int64_t base = all.front();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (linear.empty()) break;  // only the attention layers are listed: nothing to compare
    if (all[i] != base + static_cast<std::int64_t>(i) || static_cast<std::int64_t>(all.size()) != layers ||
        base > 1) {
      config.wrong(
          "full_attn_layers",
          fmt::format("together with kda_layers each of the {} layers once, counted from 1 (or from 0)",
                      layers));
    }
  }
  const std::int64_t first = linear.empty() ? 1 : base;
  Roles roles(static_cast<std::size_t>(layers), LayerRole::kRecurrent);
  for (const std::int64_t number : full) {
    const std::int64_t index = number - first;
    if (index < 0 || index >= layers)
      config.wrong("full_attn_layers", fmt::format("numbers from 1 to {}", layers));
    roles[static_cast<std::size_t>(index)] = LayerRole::kFull;
  }
  config.note("layers",
              fmt::format("{} of attention, {} recurrent", full.size(),
                          layers - static_cast<std::int64_t>(full.size())),
              fmt::format("{}, counted from {}", config.path("full_attn_layers"), first));
  return roles;
}

Roles from_flags(const Reading& reading, std::string_view key, LayerRole zero, LayerRole one) {
  Roles roles;
  for (const std::int64_t flag : reading.text.integers(key, {0, 1})) roles.push_back(flag == 1 ? one : zero);
  if (!roles.empty()) check_length(reading, key, roles.size(), false);
  return roles;
}

LayerRole role_of(Block block) {
  if (block == Block::kAttention) return LayerRole::kFull;
  return block == Block::kRecurrent ? LayerRole::kRecurrent : LayerRole::kNone;
}

std::vector<Block> blocks_of_pattern(const Fields& text, std::string_view key) {
  std::vector<Block> blocks;
  const std::string pattern = text.string("layers", {key}).value_or("");
  for (const char letter : pattern) {
    switch (letter) {
      case '*':
        blocks.push_back(Block::kAttention);
        break;
      case 'M':
        blocks.push_back(Block::kRecurrent);
        break;
      case '-':
        blocks.push_back(Block::kMlp);
        break;
      case 'E':
        blocks.push_back(Block::kMoe);
        break;
      default:
        text.wrong(key, "a text of M (Mamba), * (attention), - (MLP) and E (experts)");
    }
  }
  return blocks;
}

// The list form is shared with models whose layers have a feed-forward part each; only one that names feed-
// forward layers has them apart.
std::vector<Block> blocks_of_list(const Fields& text, std::string_view key) {
  const std::vector<std::string> words = text.strings(key);
  const bool apart = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "moe" || word == "mlp" || word == "dense";
  });
  std::vector<Block> blocks;
  if (!apart) return blocks;
  for (const std::string& word : words) {
    if (word == "moe") {
      blocks.push_back(Block::kMoe);
    } else if (word == "mlp" || word == "dense") {
      blocks.push_back(Block::kMlp);
    } else {
      blocks.push_back(role_of(text, key, word) == LayerRole::kRecurrent ? Block::kRecurrent
                                                                         : Block::kAttention);
    }
  }
  return blocks;
}

}  // namespace

std::vector<Block> separate_blocks(const Reading& reading) {
  const Fields& text = reading.text;
  return text.has("hybrid_override_pattern") ? blocks_of_pattern(text, "hybrid_override_pattern")
                                             : blocks_of_list(text, "layers_block_type");
}

std::vector<Block> separate_mtp_blocks(const Reading& reading) {
  const Fields& text = reading.text;
  return text.has("mtp_hybrid_override_pattern") ? blocks_of_pattern(text, "mtp_hybrid_override_pattern")
                                                 : blocks_of_list(text, "mtp_layers_block_type");
}

std::vector<LayerRole> listed_roles(const Reading& reading) {
  const Fields& text = reading.text;
  if (const std::vector<Block> blocks = separate_blocks(reading); !blocks.empty()) {
    Roles roles;
    for (const Block block : blocks) roles.push_back(role_of(block));
    check_length(reading,
                 text.has("hybrid_override_pattern") ? "hybrid_override_pattern" : "layers_block_type",
                 roles.size(), false);
    return roles;
  }
  for (const char* key : {"layer_types", "layers_block_type", "attn_types"}) {
    if (!text.has(key)) continue;
    const Roles roles = from_words(reading, key);
    check_length(reading, key, roles.size(), true);
    text.note("layers", fmt::format("{} entries", roles.size()), text.path(key));
    return roles;
  }
  if (const auto config = text.nested("linear_attn_config")) {
    if (Roles roles = from_numbers(reading, *config); !roles.empty()) return roles;
  }
  if (Roles roles = from_flags(reading, "hybrid_layer_pattern", LayerRole::kFull, LayerRole::kWindow);
      !roles.empty()) {
    text.note("layers", fmt::format("{} entries, 1: window", roles.size()),
              text.path("hybrid_layer_pattern"));
    return roles;
  }
  // MiniMax-01: 1 is softmax attention, 0 lightning attention.
  return from_flags(reading, "attn_type_list", LayerRole::kRecurrent, LayerRole::kFull);
}

}  // namespace mla
