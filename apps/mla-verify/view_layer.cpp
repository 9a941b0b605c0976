// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "view.hpp"

namespace mla::verify_app {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

report::Table checks_table(const LayerReport& layer) {
  report::Table table;
  table.name = "checks";
  table.title = "Checks";
  table.columns = {{"verdict", "verdict"}, {"block", "block"}, {"check", "check"},
                   {"backend", "backend"}, {"cache", "cache"}, {"budget_percent", "% of limit", 1},
                   {"finding", "finding"}};
  for (std::size_t i = 0; i < layer.results.size(); ++i) {
    for (const verify::LayerCheck& check : layer.results[i].checks) {
      table.rows.push_back({std::string(check.refused  ? "unsupported"
                                        : check.passed ? "pass"
                                                       : "FAIL"),
                            layer.layers[i].prefix, check.what, check.backend, check.cache,
                            check.refused ? report::Cell() : report::Cell(100 * check.share), check.finding});
    }
  }
  return table;
}

report::Table tensors_table(const LayerReport& layer) {
  report::Table table;
  table.name = "tensors";
  table.title = "Tensors read";
  table.columns = {{"tensor", "tensor"}, {"dtype", "stored as"}, {"shape", "shape"}, {"scales", "scales"}};
  for (const verify::LoadedLayer& loaded : layer.layers) {
    for (const verify::ReadTensor& t : loaded.tensors) {
      table.rows.push_back({t.name, t.stored_dtype, shape_text(t.shape), t.scales});
    }
  }
  return table;
}

}  // namespace

report::Document layer_document(const LayerReport& layer) {
  report::Document document;
  document.kind = "verify.layer";
  std::int64_t passed = 0, failed = 0, refused = 0;
  for (const verify::LayerResult& result : layer.results) {
    for (const verify::LayerCheck& check : result.checks) {
      ++(check.refused ? refused : check.passed ? passed : failed);
      if (!check.passed) {
        document.notes.push_back(fmt::format("FAIL {} ({}): {}", check.what, check.backend, check.finding));
      }
    }
  }
  document.headline = {fmt::format("{}: layer {} of {}: {} checks pass, {} fail, {} not supported",
                                   failed > 0 ? "FAIL" : "PASS", layer.layer, layer.model.name, passed,
                                   failed, refused)};
  const verify::LoadedLayer& first = layer.layers.front();
  const MlaDims& d = first.config.dims;
  document.facts = {
      {"layer", layer.layer},
      {"blocks", static_cast<std::int64_t>(layer.layers.size())},
      {"hidden", layer.hidden},
      {"tokens", static_cast<std::int64_t>(layer.results.front().step.out.size()) / first.config.hidden_size},
      {"dims",
       fmt::format("h{} l{} r{} p{} v{} hidden {}{}", d.num_heads, d.kv_lora_rank, d.qk_rope_head_dim,
                   d.qk_nope_head_dim, d.v_head_dim, first.config.hidden_size,
                   first.config.q_lora_rank ? fmt::format(" q_lora_rank {}", *first.config.q_lora_rank)
                                            : std::string())},
      {"softmax_scale", layer.results.front().softmax_scale},
      {"rope_amplitude", layer.results.front().rope_amplitude},
      {"norm_eps", first.config.kv_norm_eps},
      {"largest_score", layer.results.front().max_score},
      {"checks_passed", passed},
      {"checks_failed", failed},
      {"checks_not_supported", refused}};
  for (const verify::LoadedLayer& loaded : layer.layers) {
    if (!loaded.not_read.empty()) {
      document.notes.push_back(
          fmt::format("not part of this check: {}{}", loaded.prefix, fmt::join(loaded.not_read, ", ")));
    }
  }
  document.tables.push_back(checks_table(layer));
  document.tables.push_back(tensors_table(layer));
  return document;
}

}  // namespace mla::verify_app
