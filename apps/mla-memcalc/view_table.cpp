// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "figures.hpp"
#include "mla/error.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::AttentionBytes;
using capacity::CacheCost;
using capacity::Line;
using report::Cell;

/// The cache formats that get a column.
struct FormatColumn {
  const char* format;
  const char* engine;  ///< whose MLA storage counts
  const char* key;
  const char* title;
};
constexpr FormatColumn kColumns[] = {
    {"bf16", "none", "bf16", "bf16"},
    {"fp8", "none", "fp8", "fp8"},
    {"fp8_ds_mla", "none", "fp8_ds_mla", "fp8_ds_mla"},
    {"q8_0", "none", "q8_0", "q8_0"},
    {"f16", "llama.cpp@2025-10", "llama_cpp_2025", "llama.cpp K + V"},
};

std::optional<CacheCost> cost_in(const ModelConfig& model, const FormatColumn& column) {
  capacity::EngineRules engine = capacity::find_engine(column.engine);
  if (engine.mla_storage != capacity::MlaStorage::kLatent && !model.mla) return std::nullopt;
  engine.window =
      capacity::find_engine("none").window;  // this table counts what a token must keep, not pages
  try {
    return capacity::cache_cost(model, capacity::find_kv_format(column.format), engine);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return std::nullopt;  // the format has no layout for this model
  }
}

std::string bytes_text(double bytes) {
  const auto whole = static_cast<std::int64_t>(bytes);
  return static_cast<double>(whole) == bytes ? report::with_thousands(whole) : fmt::format("{:.1f}", bytes);
}

/// Layers of ordinary attention that would have to keep K and V of every head.
int attention_layers(const ModelConfig& model) {
  return static_cast<int>(
      std::count_if(model.layers.begin(), model.layers.end(), [](const LayerCache& layer) {
        return !layer.mtp && layer.kind != AttentionKind::kRecurrent && layer.kind != AttentionKind::kNone;
      }));
}

std::optional<AttentionBytes> alternatives(const ModelConfig& model) {
  if (model.count(AttentionKind::kCompressed) > 0) return std::nullopt;
  return capacity::attention_bytes(model);
}

std::string kind_of(const ModelConfig& model) {
  if (model.mla) return "MLA";
  if (model.count(AttentionKind::kCompressed) > 0) return "compressed";
  const int heads = model.num_kv_heads;
  return heads == model.num_heads ? "MHA" : heads == 1 ? "MQA" : fmt::format("GQA-{}", heads);
}

report::Column number_column(const char* key, const char* title) {
  return {.key = key, .title = title, .precision = 1, .thousands = true};
}

report::Table model_table(const std::vector<ModelConfig>& models, std::vector<Line>* formulas) {
  report::Table table{
      .name = "per_token", .title = "Bytes of a token, all layers", .columns = {}, .rows = {}};
  table.columns = {{.key = "model", .title = "model"},
                   {.key = "attention", .title = "attention"},
                   number_column("layers", "layers")};
  for (const FormatColumn& column : kColumns)
    table.columns.push_back(number_column(column.key, column.title));
  table.columns.push_back(number_column("index_keys", "+ index keys"));
  table.columns.push_back(number_column("mha", "as MHA"));
  table.columns.push_back({.key = "mha_ratio", .title = "MHA / bf16", .precision = 1});
  table.columns.push_back(number_column("window_bytes", "window, a sequence"));
  table.columns.push_back(number_column("state_bytes", "state, a sequence"));
  for (const ModelConfig& model : models) {
    const std::optional<CacheCost> bf16 = cost_in(model, kColumns[0]);
    std::vector<Cell> row{model.name, kind_of(model), std::int64_t{attention_layers(model)}};
    for (const FormatColumn& column : kColumns) {
      const std::optional<CacheCost> cost = cost_in(model, column);
      row.push_back(cost ? bytes_cell(cost->bytes_per_token) : Cell());
      if (!cost || formulas == nullptr) continue;
      for (Line line : cost->lines) {
        line.key = fmt::format("{}.{}.{}", model.name, column.key, line.key);
        if (line.key.find(".cache.index_keys") != std::string::npos && &column != &kColumns[0]) continue;
        formulas->push_back(std::move(line));
      }
    }
    row.push_back(bf16 && bf16->index_layers > 0 ? bytes_cell(bf16->index_bytes_per_token) : Cell());
    if (const std::optional<AttentionBytes> other = alternatives(model)) {
      const std::int64_t mha = other->mha * attention_layers(model);
      const double now = bf16 ? bf16->bytes_per_token + bf16->window_bytes_per_token : 0;
      row.push_back(mha);
      row.push_back(now > 0 ? Cell(static_cast<double>(mha) / now) : Cell());
    } else {
      row.insert(row.end(), {Cell(), Cell()});
    }
    row.push_back(bf16 && bf16->window_bytes > 0 ? Cell(bf16->window_bytes) : Cell());
    row.push_back(bf16 && bf16->state_bytes > 0 ? Cell(bf16->state_bytes) : Cell());
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Bytes of a token in one full-length layer under a column's format.
Cell layer_bytes(const ModelConfig& model, const LayerCache& layer, const FormatColumn& column,
                 capacity::PartKind kind) {
  try {
    const auto parts = capacity::cache_parts(model, layer, capacity::find_kv_format(column.format),
                                             capacity::find_engine(column.engine));
    for (const capacity::CachePart& part : parts) {
      if (part.kind == kind)
        return bytes_cell(static_cast<double>(part.entry_bytes()) / part.tokens_per_entry);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
  }
  return Cell();
}

std::string widths_text(const ModelConfig& model, const LayerCache& layer) {
  if (model.mla) {
    const MlaDims& d = *model.mla;
    return fmt::format("H {} L {} R {} P {} V {}", d.num_heads, d.kv_lora_rank, d.qk_rope_head_dim,
                       d.qk_nope_head_dim, d.v_head_dim);
  }
  return fmt::format("H {} KV {} K {} V {}", model.num_heads, layer.kv_heads, layer.head_dim_k,
                     layer.head_dim_v);
}

void add_layer_formulas(const ModelConfig& model, const AttentionBytes& bytes, std::vector<Line>& formulas) {
  std::int64_t heads = model.num_heads;
  int key = model.head_dim;
  int key_per_head = model.head_dim;
  int value = model.head_dim;
  if (model.mla) {
    heads = model.mla->num_heads;
    key = model.mla->head_width();
    key_per_head = model.mla->qk_nope_head_dim;
    value = model.mla->v_head_dim;
  }
  const std::string source = fmt::format("widths of {}", model.name);
  const auto add = [&](const char* name, const char* title, std::int64_t number, std::int64_t count,
                       int width) {
    formulas.push_back({.key = fmt::format("{}.layer.{}", model.name, name),
                        .title = title,
                        .value = number,
                        .formula = fmt::format("{} heads x ({} + {}) x 2 B", count, width, value),
                        .source = source});
  };
  add("mha", "MHA of the same widths", bytes.mha, heads, key);
  add("mha_textbook", "MHA without the rotary part of K", bytes.mha_textbook, heads, key_per_head);
  add("gqa8", "GQA with 8 KV heads", bytes.gqa8, 8, key_per_head);
  add("mqa", "MQA", bytes.mqa, 1, key_per_head);
}

report::Table layer_table(const std::vector<ModelConfig>& models, std::vector<Line>* formulas) {
  report::Table table{.name = "per_layer", .title = "Bytes of a token, one layer", .columns = {}, .rows = {}};
  table.columns = {{.key = "model", .title = "model"},
                   {.key = "widths", .title = "widths"},
                   number_column("mha", "MHA"),
                   number_column("mha_textbook", "MHA, K as nope"),
                   number_column("gqa8", "GQA-8"),
                   number_column("mqa", "MQA"),
                   number_column("bf16", "cached bf16"),
                   number_column("fp8", "fp8"),
                   number_column("fp8_ds_mla", "fp8_ds_mla"),
                   number_column("index_key", "+ index key"),
                   {.key = "of_mqa", .title = "bf16 / MQA", .precision = 2},
                   {.key = "mha_ratio", .title = "MHA / bf16", .precision = 1},
                   {.key = "mha_textbook_ratio", .title = "MHA, K as nope / bf16", .precision = 1}};
  for (const ModelConfig& model : models) {
    const auto layer = std::find_if(model.layers.begin(), model.layers.end(), [](const LayerCache& l) {
      return !l.mtp && l.window == 0 && l.kind != AttentionKind::kRecurrent &&
             l.kind != AttentionKind::kNone && l.kind != AttentionKind::kCompressed;
    });
    if (layer == model.layers.end()) continue;
    const AttentionBytes bytes = capacity::attention_bytes(model);
    const capacity::PartKind kind = model.mla ? capacity::PartKind::kRow : capacity::PartKind::kHeads;
    LayerCache with_indexer = *layer;
    with_indexer.indexer = model.indexer.has_value();
    const Cell bf16 = layer_bytes(model, *layer, kColumns[0], kind);
    const auto ratio = [&](std::int64_t a, bool inverse) -> Cell {
      const auto* now = std::get_if<std::int64_t>(&bf16);
      if (now == nullptr || *now == 0 || a == 0) return Cell();
      const double quotient = static_cast<double>(a) / static_cast<double>(*now);
      return inverse ? 1 / quotient : quotient;
    };
    table.rows.push_back({model.name, widths_text(model, *layer), bytes.mha, bytes.mha_textbook, bytes.gqa8,
                          bytes.mqa, bf16, layer_bytes(model, *layer, kColumns[1], kind),
                          layer_bytes(model, *layer, kColumns[2], kind),
                          layer_bytes(model, with_indexer, kColumns[0], capacity::PartKind::kIndex),
                          ratio(bytes.mqa, true), ratio(bytes.mha, false), ratio(bytes.mha_textbook, false)});
    if (formulas != nullptr) add_layer_formulas(model, bytes, *formulas);
  }
  return table;
}

std::vector<ModelConfig> wanted_models(const std::vector<std::string>& names) {
  std::vector<ModelConfig> models;
  for (const std::string& name : names) models.push_back(read_model(name));
  if (!names.empty()) return models;
  for (ModelConfig& model : list_models()) {
    if (model.mla || model.count(AttentionKind::kCompressed) > 0) models.push_back(std::move(model));
  }
  return models;
}

std::string token_text(const CacheCost& cost) {
  std::string text = fmt::format("{} B", bytes_text(cost.bytes_per_token));
  if (cost.index_layers > 0)
    text += fmt::format(" + {} B of index keys", bytes_text(cost.index_bytes_per_token));
  for (const auto& [bytes, what] : {std::pair{cost.window_bytes, "windows"}, {cost.state_bytes, "states"}}) {
    if (bytes > 0)
      text += fmt::format(" + {} of {} a sequence", report::human_gib(static_cast<double>(bytes)), what);
  }
  return text;
}

/// The answer before the table: one model's bytes, or the two ends of several.
std::string headline(const std::vector<ModelConfig>& models) {
  const ModelConfig* least = nullptr;
  const ModelConfig* most = nullptr;
  const auto bytes = [](const ModelConfig& model) {
    const std::optional<CacheCost> cost = cost_in(model, kColumns[0]);
    return cost ? cost->bytes_per_token + cost->index_bytes_per_token : 0.0;
  };
  for (const ModelConfig& model : models) {
    if (least == nullptr || bytes(model) < bytes(*least)) least = &model;
    if (most == nullptr || bytes(model) > bytes(*most)) most = &model;
  }
  if (least == nullptr) return "No model is known.";
  const auto said = [](const ModelConfig& model) {
    const std::optional<CacheCost> cost = cost_in(model, kColumns[0]);
    return cost ? token_text(*cost) : std::string("nothing");
  };
  if (least == most) return fmt::format("{}: a token takes {} in bf16", least->title, said(*least));
  return fmt::format("A token takes from {} ({}) to {} ({}) in bf16", said(*least), least->title, said(*most),
                     most->title);
}

/// The engines that keep K and V heads of this MLA model, with their bytes; empty if none does.
std::string expanded_note(const ModelConfig& model) {
  if (!model.mla) return {};
  std::string engines;
  for (const char* name : {"vllm", "sglang", "tensorrt-llm", "llama.cpp", "ik_llama.cpp"}) {
    const capacity::EngineRules engine = capacity::find_engine(name);
    if (capacity::stored_mla(model, engine).why.empty()) continue;
    const CacheCost cost = capacity::cache_cost(model, capacity::find_kv_format("bf16"), engine);
    engines += fmt::format("{}{} {} B", engines.empty() ? "" : ", ", name, bytes_text(cost.bytes_per_token));
  }
  const std::optional<CacheCost> latent = cost_in(model, kColumns[0]);
  if (engines.empty() || !latent) return {};
  return fmt::format(
      "{}: the {} B are latent rows, but some engines keep K and V heads of this model, and there a token "
      "takes, in "
      "bf16: {}",
      model.name, bytes_text(latent->bytes_per_token), engines);
}

/// Whose bytes those of DeepSeek-V4's compressed entries are; empty for other models.
std::string entries_note(const ModelConfig& model) {
  if (model.count(AttentionKind::kCompressed) == 0) return {};
  const FormatColumn stored{"fp8", "vllm", "", ""};
  const std::optional<CacheCost> cost = cost_in(model, stored);
  if (!cost) return {};
  return fmt::format(
      "{}: the bf16 bytes are arithmetic, no engine's: vllm (and lmcache) keep its entries in fp8 alone, and "
      "there a token takes {}",
      model.name, token_text(*cost));
}

}  // namespace

Answer table_answer(const Options& options) {
  const std::vector<ModelConfig> models = wanted_models(options.models);
  std::vector<Line> lines;
  std::vector<Line>* formulas = options.formulas ? &lines : nullptr;
  Answer answer;
  report::Document& document = answer.document;
  document.kind = "memcalc.table";
  document.headline.push_back(headline(models));
  document.tables.push_back(model_table(models, formulas));
  document.tables.push_back(layer_table(models, formulas));
  if (draws(options)) document.figure = table_figure(document.tables.front());
  document.notes = {
      "Bytes on one rank, prediction layers (MTP) not counted; MLA is not divided by tensor parallelism.",
      "as MHA: H x (P + R + V) x 2 B a layer. GQA-8 and MQA: 8 and 1 heads of K as wide as P, and V.",
      "llama.cpp K + V: f16 rows and the latent again as V (builds of 2025-04 to 2026-01; later ones keep K "
      "alone)."};
  for (const ModelConfig& model : models) {
    add_warnings(document, model.warnings);
    for (const std::string& note : {expanded_note(model), entries_note(model)}) {
      if (note.empty()) continue;
      // Who asks about the model must not take these bytes for what plan counts.
      if (options.models.empty()) {
        document.notes.push_back(note);
      } else {
        document.headline.push_back(note + ".");
      }
    }
  }
  if (formulas != nullptr) document.tables.push_back(formulas_table(lines));
  return answer;
}

}  // namespace mla::memcalc
