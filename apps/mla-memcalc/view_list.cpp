// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "core/text.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string kind_of(const ModelConfig& model) {
  if (is_mla(model).yes) {
    const std::string sparse = is_sparse(model).yes ? "sparse MLA" : "MLA";
    return model.count(AttentionKind::kRecurrent) > 0 ? sparse + " + recurrent" : sparse;
  }
  if (model.count(AttentionKind::kCompressed) > 0) return "compressed";
  return model.count(AttentionKind::kRecurrent) > 0 ? "K and V heads + recurrent" : "K and V heads";
}

report::Table models_table() {
  report::Table table{.name = "models", .title = "Models", .columns = {}, .rows = {}};
  table.columns = {{.key = "name", .title = "name"},           {.key = "title", .title = "model"},
                   {.key = "attention", .title = "attention"}, {.key = "layers", .title = "layers"},
                   {.key = "aliases", .title = "also"},        {.key = "checked", .title = "checked"},
                   {.key = "source", .title = "source"}};
  for (const ModelConfig& model : list_models()) {
    table.rows.push_back({model.name, model.title, kind_of(model), std::int64_t{model.num_layers},
                          joined(model.aliases), model.checked, model.source});
  }
  return table;
}

report::Table gpus_table() {
  report::Table table{.name = "gpus", .title = "GPUs", .columns = {}, .rows = {}};
  table.columns = {{.key = "name", .title = "name"},           {.key = "title", .title = "GPU"},
                   {.key = "memory_gib", .title = "GiB"},      {.key = "memory_gb", .title = "GB"},
                   {.key = "bandwidth_tb_s", .title = "TB/s"}, {.key = "aliases", .title = "also"},
                   {.key = "checked", .title = "checked"},     {.key = "source", .title = "source"}};
  for (const Device& device : list_devices()) {
    const auto bytes = static_cast<double>(device.memory_bytes);
    table.rows.push_back({device.name, device.title, to_gib(bytes), to_gb(bytes),
                          device.memory_bandwidth / 1e12, joined(device.aliases), device.checked,
                          device.source});
  }
  return table;
}

report::Table engines_table() {
  report::Table table{.name = "engines", .title = "Engines", .columns = {}, .rows = {}};
  table.columns = {{.key = "name", .title = "name"},
                   {.key = "since", .title = "since"},
                   {.key = "date", .title = "month"},
                   {.key = "rules", .title = "rules"},
                   {.key = "source", .title = "source"}};
  for (const capacity::EngineRules& rules : capacity::all_engines()) {
    table.rows.push_back({std::string(rules.name), std::string(rules.since), std::string(rules.date),
                          std::string(rules.title), std::string(rules.source)});
  }
  return table;
}

/// Of a row of 512 + 64 where the format is for such rows, else of heads of 128 with their scales.
double bits_of(const capacity::KvFormat& format) {
  if (!format.mla_only) {
    constexpr double kHead = 128;
    return 8.0 * format.k.bytes / format.k.elements + 8.0 * format.scale_bytes_per_head / kHead;
  }
  ModelConfig model;
  model.mla = MlaDims{};
  const auto parts =
      capacity::cache_parts(model, {.kind = AttentionKind::kMla}, format, capacity::find_engine("none"));
  return 8.0 * static_cast<double>(parts.front().entry_bytes()) / model.mla->latent_width();
}

report::Table formats_table() {
  report::Table table{.name = "formats", .title = "Cache and weight formats", .columns = {}, .rows = {}};
  table.columns = {{.key = "name", .title = "name"},
                   {.key = "use", .title = "for"},
                   {.key = "bits", .title = "bits an element"},
                   {.key = "what", .title = "what"}};
  for (const capacity::KvFormat& format : capacity::all_kv_formats()) {
    table.rows.push_back(
        {std::string(format.name), std::string("cache"), bits_of(format), std::string(format.title)});
  }
  for (const capacity::WeightFormat& format : capacity::all_weight_formats()) {
    constexpr std::int64_t kSide = 8192;
    const std::int64_t bytes = capacity::matrix_bytes(format, kSide, kSide);
    table.rows.push_back(
        {format.name, std::string("weights"),
         8.0 * static_cast<double>(bytes) / static_cast<double>(kSide * kSide),
         fmt::format("{}{}", format.files == capacity::WeightFiles::kGguf ? "GGUF; " : "",
                     format.scale_bits > 0 ? "with its scales, in a large matrix" : "no scales")});
  }
  return table;
}

}  // namespace

Answer list_answer(const Options& options) {
  using Maker = report::Table (*)();
  constexpr std::pair<std::string_view, Maker> kLists[] = {
      {"models", models_table}, {"gpus", gpus_table}, {"engines", engines_table}, {"formats", formats_table}};
  std::vector<std::string> names;
  for (const auto& [name, make] : kLists) {
    names.emplace_back(name);
    if (name != options.what) continue;
    Answer answer;
    report::Table table = make();
    if (options.names) {
      for (const std::vector<report::Cell>& row : table.rows) {
        answer.plain_text += std::get<std::string>(row.front()) + "\n";
      }
      return answer;
    }
    answer.document.kind = fmt::format("memcalc.list.{}", name);
    answer.document.tables.push_back(std::move(table));
    return answer;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no list of {}", text::quoted(options.what)),
              text::suggestion(options.what, names));
}

}  // namespace mla::memcalc
