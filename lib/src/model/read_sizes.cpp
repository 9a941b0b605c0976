// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "model/reading.hpp"

namespace mla {
namespace {

// LongCat's raw file has num_layers (28), each of two attentions; transformers shows num_hidden_layers = 56
// besides.
int longcat_layers(const Reading& reading) {
  const Fields& text = reading.text;
  const int layers =
      text.required("num_layers", {"num_layers"}, kLayers,
                    "LongCat's num_hidden_layers may count attentions or layers, num_layers is clear");
  const auto shown = text.integer("num_hidden_layers", {"num_hidden_layers"}, kLayers);
  if (shown && *shown != layers && *shown != 2 * layers) {
    text.wrong("num_hidden_layers", fmt::format("{} or {}, as num_layers is {}", layers, 2 * layers, layers));
  }
  return layers;
}

int count_layers(const Reading& reading) {
  if (reading.is_longcat()) return longcat_layers(reading);
  const Fields& text = reading.text;
  const Keys keys = {"num_hidden_layers", "n_layers", "n_layer", "num_layers"};
  if (!text.has_any(keys)) {
    const std::vector<Block> blocks = separate_blocks(reading);
    if (!blocks.empty()) {
      text.note("num_layers", fmt::format("{}", blocks.size()), "derived: the length of the list of blocks");
      return static_cast<int>(blocks.size());
    }
  }
  return text.required("num_layers", keys, kLayers, "the number of decoder layers");
}

int count_mtp(const Reading& reading) {
  const Fields& text = reading.text;
  const auto direct = text.integer(
      "num_mtp_layers",
      {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "mtp_num_layers"}, {0, 64});
  if (direct) return static_cast<int>(*direct);
  if (!text.boolean("use_mtp", {"use_mtp"}).value_or(false)) return 0;
  const auto modules = text.integer("num_mtp_modules", {"num_mtp_modules"}, {0, 64}).value_or(1);
  const auto each = text.integer("mtp_transformer_layers", {"mtp_transformer_layers"}, {0, 16}).value_or(1);
  return static_cast<int>(modules * each);
}

// Several keys mean different lengths in one file (Mistral: 294912 trained, 262144 served), so the first
// present counts.
std::int64_t longest_position(const Reading& reading) {
  for (const char* key : {"max_position_embeddings", "model_max_length", "max_sequence_length", "n_positions",
                          "seq_length", "max_seq_len", "n_ctx"}) {
    if (const auto tokens = reading.text.integer("max_position", {key}, kTokens)) return *tokens;
  }
  return 0;
}

void read_kv_heads(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  if (reading.family == AttentionFamily::kMla) {
    // Equal to num_attention_heads, or anything: an MLA cache has no KV heads. Never a reason to read it as
    // GQA.
    model.num_kv_heads = 1;
    return;
  }
  const Keys keys = {"num_key_value_heads", "n_kv_heads",       "num_kv_heads",
                     "n_head_kv",           "num_query_groups", "multi_query_group_num",
                     "num_attention_groups"};
  if (text.has("block_configs")) return;  // NAS: each layer says its own
  if (text.boolean("multi_query", {"multi_query"}).value_or(false) &&
      !text.boolean("new_decoder_architecture", {"new_decoder_architecture"}).value_or(false)) {
    model.num_kv_heads = 1;
    text.note("num_kv_heads", "1", text.path("multi_query"));
    return;
  }
  const auto heads = text.integer("num_kv_heads", keys, kWidth);
  if (heads) {
    model.num_kv_heads = static_cast<int>(*heads);
  } else if (kv_heads_default_to_heads(model.model_type)) {
    model.num_kv_heads = model.num_heads;
    text.note("num_kv_heads", fmt::format("{}", model.num_heads),
              fmt::format("default of the {} class: num_attention_heads{}", model.model_type,
                          text.present("num_key_value_heads") ? " (the file says null)" : ""));
  } else {
    text.missing(keys, "without it nothing says whether this is MHA, GQA or MQA");
  }
  if (model.num_kv_heads > model.num_heads || model.num_heads % model.num_kv_heads != 0) {
    text.wrong("num_key_value_heads", fmt::format("a divisor of num_attention_heads ({})", model.num_heads));
  }
}

void read_head_dim(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  if (reading.family == AttentionFamily::kMla) {
    // Present in many MLA files and never the cache width: 64, 72 or 192 where the row is 576 wide.
    return;
  }
  const Keys keys = {"head_dim", "attention_head_dim", "kv_channels"};
  if (const auto width = text.integer("head_dim", keys, {1, 1 << 16})) {
    model.head_dim = static_cast<int>(*width);
    return;
  }
  if (reading.family == AttentionFamily::kCompressed) text.missing(keys, "the width of a compressed entry");
  if (model.hidden_size % model.num_heads != 0) {
    text.missing(keys, fmt::format("hidden_size {} is no multiple of num_attention_heads {}",
                                   model.hidden_size, model.num_heads));
  }
  model.head_dim = model.hidden_size / model.num_heads;
  text.note("head_dim", fmt::format("{}", model.head_dim), "derived: hidden_size / num_attention_heads");
}

}  // namespace

void read_sizes(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  model.num_layers = count_layers(reading);
  model.num_mtp_layers = count_mtp(reading);
  model.hidden_size = text.required("hidden_size", {"hidden_size", "dim", "n_embd", "d_model"}, kWidth);
  model.num_heads =
      text.required("num_heads", {"num_attention_heads", "n_heads", "n_head", "num_heads"}, {1, 1 << 14});
  read_kv_heads(reading);
  read_head_dim(reading);
  model.vocab_size = text.integer_or("vocab_size", {"vocab_size", "padded_vocab_size"}, {0, 1 << 28}, 0,
                                     "absent: embeddings cannot be counted");
  model.max_position = longest_position(reading);
  for (const char* key :
       {"rms_norm_eps", "norm_eps", "layernorm_epsilon", "layer_norm_epsilon", "layer_norm_eps"}) {
    if (!text.has(key)) continue;
    model.rms_norm_eps = *text.real("rms_norm_eps", {key}, 0.0, 1.0);
    break;
  }
  model.attention_bias = text.boolean_or("attention_bias", {"attention_bias"}, false);
  model.mlp_bias = text.boolean_or("mlp_bias", {"mlp_bias"}, false);
}

}  // namespace mla
