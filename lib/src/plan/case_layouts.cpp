// SPDX-License-Identifier: Apache-2.0
// Sizes of blocks, groups, states, tensors and weights.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/case_asked.hpp"
#include "plan/weight_padding.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

Computed bytes_per_token(const Asked& asked) {
  const PlanRequest request = request_of(asked);
  const CacheCost cost =
      cache_cost(asked.one.model, request.cache, request.engine, request.layout.tp, request.with_mtp);
  return exactly(cost.bytes_per_token + cost.index_bytes_per_token, cost_formula(asked, request));
}

Computed kv_tensors(const Asked& asked) {
  const PlanRequest request = request_of(asked);
  double tensors = 0;
  for (const LayerCache& layer : asked.one.model.layers) {
    if (layer.mtp && !request.with_mtp) continue;
    tensors += static_cast<double>(
        cache_parts(asked.one.model, layer, request.cache, request.engine, request.layout.tp).size());
  }
  return exactly(tensors, "rows and index keys, a tensor each");
}

Computed elements_per_layer(const Asked& asked) {
  if (!asked.one.model.mla) refuse("the model has no latent row");
  const MlaDims& dims = *asked.one.model.mla;
  return exactly(dims.latent_width(), fmt::format("{} + {}", dims.kv_lora_rank, dims.qk_rope_head_dim));
}

CachePool only_pool(const Asked& asked) {
  const PlanRequest request = request_of(asked);
  PoolSet pools = pool_geometry(pool_inputs(asked.one.model, request), 0);
  if (pools.pools.size() != 1) refuse("the layers are not in one pool");
  return std::move(pools.pools.front());
}

Computed page_padding(const Asked& asked) {
  const CachePool pool = only_pool(asked);
  const std::int64_t state = pool.page_bytes - pool.padding_bytes;
  if (state <= 0) refuse("the model has no recurrent state");
  return exactly(100.0 * static_cast<double>(pool.padding_bytes) / static_cast<double>(state),
                 fmt::format("page {} B, state {} B", num(pool.page_bytes), num(state)));
}

Computed padding_layers(const Asked& asked) {
  int layers = 0;
  const CachePool pool = only_pool(asked);
  for (const CacheGroup& group : pool.groups) layers += group.padding_layers;
  return exactly(layers, fmt::format("{} groups of equal size", pool.groups.size()));
}

/// DeepSeek-V4's group pages: "main", "c4_state", "c128_state", and "swaN" for N window layers.
Computed group_page(const Asked& asked) {
  const CachePool pool = only_pool(asked);
  const std::string_view name = asked.key.substr(asked.key.find('.') + 1);
  constexpr std::pair<std::string_view, std::int64_t> kBlocks[] = {
      {"main", 256}, {"swa", 64}, {"c4_state", 4}, {"c128_state", 8}};
  for (const auto& [prefix, block] : kBlocks) {
    if (!name.starts_with(prefix)) continue;
    for (const CacheGroup& group : pool.groups) {
      if (group.block != block || group.layers == 0) continue;
      if (prefix == "swa" && name != fmt::format("swa{}", group.layers)) continue;
      return exactly(static_cast<double>(group.block_bytes),
                     fmt::format("pages of {} tensors", group.layers));
    }
  }
  refuse(fmt::format("there is no group {} of pages", text::quoted(name)));
}

/// Blocks of CPU swap space of an engine without MLA, heads padded to a width the kernels had.
Computed cpu_blocks(const Asked& asked) {
  const ModelConfig& model = asked.one.model;
  const std::int64_t heads = model.mla ? model.mla->num_heads : model.num_kv_heads;
  const std::int64_t width = asked.in.count({"head_padding"}, model.head_dim);
  const std::int64_t element = asked.in.cache_format().k.bytes;
  std::int64_t layers = 0;
  for (const LayerCache& layer : model.layers) layers += layer.mtp ? 0 : 1;
  const std::int64_t block = times(times(times(layers, 2 * heads), times(width, element)), asked.in.block());
  if (block < 1) refuse("the inputs lack block_size or head widths");
  const CaseInputs::Budget budget = asked.in.budget(0, 0);
  return {static_cast<double>(budget.low / block), static_cast<double>(budget.high / block),
          fmt::format("floor({} / ({} layers x 2 x {} heads x {} x {} B x {} tokens))", budget.text, layers,
                      heads, width, element, asked.in.block())};
}

/// The layers of one pipeline stage as a model of its own, where a log says which it has.
ModelConfig stage_model(const Asked& asked) {
  ModelConfig model = asked.one.model;
  const std::int64_t dense = asked.in.count({"stage_layers.dense"}, -1);
  const std::int64_t experts = asked.in.count({"stage_layers.moe"}, -1);
  if (dense < 0 && experts < 0) return model;
  std::int64_t dense_left = std::max<std::int64_t>(0, dense);
  std::int64_t experts_left = std::max<std::int64_t>(0, experts);
  std::vector<int> kept;
  for (const LayerFfn& ffn : model.ffn) {
    std::int64_t& left = ffn.moe ? experts_left : dense_left;
    if (ffn.mtp || left == 0) continue;
    --left;
    kept.push_back(ffn.model_layer);
  }
  const auto dropped = [&](const auto& layer) {
    return std::find(kept.begin(), kept.end(), layer.model_layer) == kept.end();
  };
  std::erase_if(model.layers, dropped);
  std::erase_if(model.ffn, dropped);
  const auto renumber = [&](auto& layers) {
    for (auto& layer : layers) {
      layer.model_layer =
          static_cast<int>(std::find(kept.begin(), kept.end(), layer.model_layer) - kept.begin());
    }
  };
  renumber(model.layers);
  renumber(model.ffn);
  model.num_layers = static_cast<int>(kept.size());
  return model;
}

Computed weights_gib(const Asked& asked) {
  const ModelConfig model = stage_model(asked);
  Layout layout = asked.in.layout();
  const bool one_stage = asked.in.number({"stage_layers.dense", "stage_layers.moe"}).has_value();
  if (one_stage) {
    layout.pp = 1;
    layout.stage_layers.clear();
  }
  const auto stage = std::min(asked.index, static_cast<std::size_t>(layout.pp) - 1);
  const WeightPlan plan = weights_on_rank(model, asked.in.weight_scheme(), layout, static_cast<int>(stage),
                                          asked.in.rules(), asked.in.mtp());
  const std::int64_t copies = absorbed_bytes(model, asked.in.weight_scheme(), layout, static_cast<int>(stage),
                                             asked.in.rules(), asked.in.mtp());
  auto bytes = static_cast<double>(plan.bytes);
  for (const Line& line : plan.lines) {
    const bool absent = (line.key == "weights.embeddings.tokens" && !asked.in.flag("embed_on_stage", true)) ||
                        (line.key == "weights.embeddings.head" && !asked.in.flag("lm_head_on_stage", true));
    if (absent) bytes -= static_cast<double>(std::get<std::int64_t>(line.value));
  }
  // A log may count the copies or say what the checkpoint stores.
  return {bytes / kGiB, (bytes + static_cast<double>(copies)) / kGiB,
          fmt::format("{} parts of {} in layout {}{}", plan.lines.size(), asked.one.model_name,
                      to_text(layout), copies > 0 ? "; with kv_b in 16 bits beside them the higher" : "")};
}

Computed attention_block(const Asked& asked) {
  const PlanRequest request = request_of(asked);
  const PoolSet pools = pool_geometry(pool_inputs(asked.one.model, request), 0);
  return exactly(static_cast<double>(pools.block), "tokens a block of full-length layers holds");
}

Computed block_bytes(const Asked& asked) {
  const CachePool pool = only_pool(asked);
  return exactly(static_cast<double>(pool.block_bytes),
                 fmt::format("pages of {} groups", pool.groups.size()));
}

Computed state_bytes(const Asked& asked) {
  const PlanRequest request = request_of(asked);
  const CacheCost cost =
      cache_cost(asked.one.model, request.cache, request.engine, request.layout.tp, request.with_mtp);
  return exactly(static_cast<double>(cost.state_bytes), cost_formula(asked, request));
}

Computed index_record(const Asked& asked) {
  if (!asked.one.model.indexer) refuse("the model has no indexer");
  return exactly(kIndexKeyBytes, fmt::format("{} e4m3 + one f32 scale", kIndexKeyWidth));
}

constexpr Quantity kQuantities[] = {
    {"cpu_blocks", cpu_blocks},
    {"bytes_per_token", bytes_per_token},
    {"kv_tensors", kv_tensors},
    {"indexer_record_bytes", index_record},
    {"elements_per_token_per_layer", elements_per_layer},
    {"mamba_page_padding_percent", page_padding},
    {"padding_layers", padding_layers},
    {"attention_block_size", attention_block},
    {"block_bytes", block_bytes},
    {"state_bytes_per_sequence", state_bytes},
    {"group_page_bytes", group_page},
    {"weights_gib", weights_gib},
};

}  // namespace

std::span<const Quantity> layout_quantities() noexcept {
  return kQuantities;
}

}  // namespace mla::capacity
