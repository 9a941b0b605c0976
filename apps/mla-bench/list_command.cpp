// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "commands.hpp"
#include "core/text.hpp"
#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "mla/model.hpp"
#include "mla/plugin_host.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {
namespace {

using report::Cell;
using report::Table;

/// Where a backend would run here; a sentence where it cannot run at all.
Support machine_support(const Backend& backend) {
  return backend.info().on_device ? Support::no("it needs a GPU, and this program sees none")
                                  : Support::yes();
}

Table backends_table(const std::string& shape_text) {
  Table table{"backends", "", {{"backend", "backend"}, {"strategy", "strategy"}, {"runs_here", "here"}}, {}};
  std::optional<AttentionShape> shape;
  if (!shape_text.empty()) {
    shape = parse_shape(shape_text);
    validate(*shape);
    table.columns.push_back({"supported", "shape"});
  }
  table.columns.push_back({"reason", "why not"});
  table.columns.push_back({"origin", "from"});
  table.columns.push_back({"summary", "idea"});
  for (const Backend* backend : backends()) {
    const BackendInfo& info = backend->info();
    const Support here = machine_support(*backend);
    std::string reason = here.why;
    std::vector<Cell> row{std::string(info.name), std::string(info.strategy), here.ok};
    if (shape) {
      const Support support = backend->supports(*shape, host_device());
      row.emplace_back(support.ok);
      if (!support.ok) reason = support.why;
    }
    row.push_back(reason.empty() ? Cell{} : Cell{reason});
    const std::string origin = origin_of(*backend);
    row.push_back(origin.empty() ? Cell{} : Cell{origin});
    row.emplace_back(std::string(info.summary));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table models_table() {
  Table table{"models",
              "",
              {{"model", "model"},
               {"mla", "MLA"},
               {"heads", "heads"},
               {"kv_lora_rank", "latent"},
               {"qk_rope_head_dim", "rope"},
               {"qk_nope_head_dim", "nope"},
               {"v_head_dim", "value"},
               {"layers", "layers"},
               {"title", "title"},
               {"path", "file"}},
              {}};
  for (const ModelConfig& model : list_models()) {
    std::vector<Cell> row{model.name, model.mla.has_value(), std::int64_t{model.num_heads}};
    if (model.mla) {
      for (const int width : {model.mla->kv_lora_rank, model.mla->qk_rope_head_dim,
                              model.mla->qk_nope_head_dim, model.mla->v_head_dim}) {
        row.emplace_back(std::int64_t{width});
      }
    } else {
      row.resize(row.size() + 4);
    }
    row.emplace_back(std::int64_t{model.num_layers});
    row.emplace_back(model.title);
    row.emplace_back(model.path);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table gpus_table() {
  Table table{"gpus",
              "",
              {{"gpu", "gpu"},
               {"memory_gb", "GB", 0},
               {"bandwidth_tbps", "TB/s", 2},
               {"bf16_tflops", "bf16 TFLOP/s", 0},
               {"title", "title"},
               {"path", "file"}},
              {}};
  for (const Device& gpu : list_devices()) {
    const auto bf16 = gpu.dense_flops.find("bf16");
    table.rows.push_back({gpu.name, static_cast<double>(gpu.memory_bytes) / 1e9, gpu.memory_bandwidth / 1e12,
                          bf16 == gpu.dense_flops.end() ? Cell{} : Cell{bf16->second / 1e12}, gpu.title,
                          gpu.path});
  }
  return table;
}

Table specs_table() {
  Table table{"specs", "", {{"spec", "spec"}, {"question", "question it answers"}, {"path", "file"}}, {}};
  for (const spec::SpecEntry& entry : spec::list_specs()) {
    table.rows.push_back({entry.name, entry.question, entry.path.string()});
  }
  return table;
}

Table axes_table() {
  Table table{
      "axes",
      "",
      {{"key", "key"}, {"section", "section"}, {"type", "values"}, {"default", "default"}, {"what", "what"}},
      {}};
  for (const spec::SweepKey& key : spec::sweep_keys()) {
    table.rows.push_back({std::string(key.name), key.section == spec::Section::kAxes ? "axes" : "measure",
                          std::string(key.type),
                          key.fallback.empty() ? Cell{} : Cell{std::string(key.fallback)},
                          std::string(key.what)});
  }
  return table;
}

Table table_of(const ListRequest& request) {
  if (request.what == "backends") return backends_table(request.shape);
  if (!request.shape.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--explain is about backends, not {}", request.what));
  }
  if (request.what == "models") return models_table();
  if (request.what == "gpus") return gpus_table();
  if (request.what == "specs") return specs_table();
  if (request.what == "axes") return axes_table();
  const std::vector<std::string> known{"backends", "models", "gpus", "specs", "axes"};
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no list of {}", text::quoted(request.what)),
              text::suggestion(request.what, known));
}

}  // namespace

int answer(const ListRequest& request) {
  report::Document document;
  document.kind = "bench.list." + request.what;
  document.tables.push_back(table_of(request));
  if (!request.names) {
    cli::print(document, request.output);
    return cli::kOk;
  }
  std::string names;
  for (const auto& row : document.tables.front().rows) names += std::get<std::string>(row.front()) + '\n';
  cli::write_stdout(names);
  return cli::kOk;
}

}  // namespace mla::bench
