// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/reading.hpp"

namespace mla {
namespace {

constexpr Range kRopeWidth{0, 1 << 16};

int read_value_width(const Reading& reading, const MlaDims& dims) {
  const Fields& text = reading.text;
  const Keys keys = {"v_head_dim", "attention_v_dim"};
  if (!text.has_any(keys) && reading.is_type("minicpm3")) {
    const int width = reading.model->hidden_size / dims.num_heads;
    return text.integer_or("v_head_dim", keys, kWidth, width,
                           "default of MiniCPM3Config: hidden_size / num_attention_heads");
  }
  return text.required("v_head_dim", keys, kWidth, "it is not always qk_nope_head_dim (GLM: 256 and 192)");
}

// null says "no latent query", and so does 0, as DeepSeek's own code writes it; absence says nothing: class defaults differ
// (1536 for deepseek_v3).
std::optional<int> read_query_rank(const Reading& reading) {
  const Fields& text = reading.text;
  const Keys keys = {"q_lora_rank", "attention_q_lora_dim"};
  for (const std::string_view key : keys) {
    if (text.present(key) && !text.has(key)) {
      text.note("q_lora_rank", "null", text.path(key) + ": one q_proj");
      return std::nullopt;
    }
  }
  const int rank = text.required("q_lora_rank", keys, kCountOrNone,
                                 "null would mean a single q_proj, absence says nothing");
  return rank == 0 ? std::nullopt : std::optional(rank);
}

void read_multipliers(Reading& reading) {
  ModelConfig& model = *reading.model;
  const double hidden = model.hidden_size;
  if (reading.text.boolean("mla_scale_q_lora", {"mla_scale_q_lora"}).value_or(false) && model.q_lora_rank) {
    model.mla_q_multiplier = std::sqrt(hidden / *model.q_lora_rank);
  }
  if (reading.text.boolean("mla_scale_kv_lora", {"mla_scale_kv_lora"}).value_or(false)) {
    model.mla_kv_multiplier = std::sqrt(hidden / model.mla->kv_lora_rank);
  }
}

}  // namespace

void read_mla(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  // Sparse indexers belong to MLA and to DeepSeek-V4 alike.
  if (text.has("index_topk")) {
    IndexerConfig indexer;
    indexer.topk = text.required("index_topk", {"index_topk"}, {1, 1 << 24});
    indexer.num_heads = text.required("index_n_heads", {"index_n_heads"}, kWidth, "index_topk needs it");
    indexer.head_dim = text.required("index_head_dim", {"index_head_dim"}, kWidth, "index_topk needs it");
    indexer.key_pool =
        text.integer_or("index_kpool", {"index_kpool"}, {1, 1 << 16}, 1, "default: a key a token");
    model.indexer = indexer;
  }
  if (text.has("sparse_attention_config")) {
    text.note("sparse attention", "blocks",
              text.path("sparse_attention_config") + ": its index keys are not counted, as engines differ");
  }
  if (reading.family == AttentionFamily::kCompressed) {
    model.q_lora_rank = read_query_rank(reading);
    return;
  }
  if (reading.family != AttentionFamily::kMla) return;

  const std::string why = fmt::format(
      "this is an MLA model ({}), whose cache row it is; it is never read as GQA", reading.family_reason);
  MlaDims dims;
  dims.num_heads = model.num_heads;
  dims.kv_lora_rank = text.required("kv_lora_rank", {"kv_lora_rank", "attention_kv_lora_dim"}, kWidth, why);
  dims.qk_rope_head_dim = text.required("qk_rope_head_dim", {"qk_rope_head_dim", "attention_qk_rope_dim"},
                                        kRopeWidth, "it is cached beside the latent; 0 would mean none");
  dims.qk_nope_head_dim = text.required("qk_nope_head_dim", {"qk_nope_head_dim", "attention_qk_dim"}, kWidth,
                                        "the width of the unrotated part of a head");
  dims.v_head_dim = read_value_width(reading, dims);
  try {
    validate(dims);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", text.origin(), error.what()), error.hint());
  }
  model.mla = dims;
  model.q_lora_rank = read_query_rank(reading);
  model.mla_use_nope = text.boolean("mla_use_nope", {"mla_use_nope", "use_mla_nope"}).value_or(false);
  read_multipliers(reading);
  for (const char* unused : {"head_dim", "qk_head_dim", "num_key_value_heads", "n_kv_heads"}) {
    if (text.has(unused)) {
      text.note(unused, json::describe(*text.get(unused)),
                text.path(unused) + ": not used, an MLA row has no such width");
    }
  }
}

std::vector<bool> indexer_layers(const Reading& reading) {
  const ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  const auto layers = static_cast<std::size_t>(model.num_layers);
  std::vector<bool> own(layers, model.indexer.has_value());
  if (!model.indexer) return own;

  if (const std::vector<std::string> types = text.strings("indexer_types"); !types.empty()) {
    if (types.size() < layers || types.size() > layers + static_cast<std::size_t>(model.num_mtp_layers)) {
      text.wrong("indexer_types", fmt::format("a list of {}, one a layer", layers));
    }
    for (std::size_t i = 0; i < layers; ++i) {
      if (types[i] != "full" && types[i] != "shared")
        text.wrong("indexer_types", "a list of 'full' and 'shared'");
      own[i] = types[i] == "full";
    }
    text.note("indexer", fmt::format("on {} of {} layers", std::count(own.begin(), own.end(), true), layers),
              text.path("indexer_types"));
    return own;
  }
  if (text.has("index_topk_pattern")) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: index_topk_pattern without indexer_types cannot be read; it is {}",
                            text.origin(), json::describe(*text.get("index_topk_pattern"))),
                "add the list indexer_types, one of 'full' and 'shared' a layer");
  }
  const auto every = text.integer("index_topk_freq", {"index_topk_freq"}, kLayers).value_or(1);
  if (every == 1) return own;
  // GLM-5.2: the first `offset` layers have their own, then every 4th (0 1 2 6 10 ...); the others reuse its
  // choice.
  const auto offset =
      text.integer("index_skip_topk_offset", {"index_skip_topk_offset"}, {0, 4096}).value_or(1);
  for (std::size_t i = 0; i < layers; ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    own[i] = layer < offset || (layer - offset + 1) % every == 0;
  }
  return own;
}

}  // namespace mla
