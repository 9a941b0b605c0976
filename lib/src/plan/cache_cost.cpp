// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

/// Layers that keep the same thing, counted together so that a formula reads "61 layers x ...".
struct Alike {
  CachePart part;
  int layers = 0;
};

std::vector<Alike> alike_parts(const ModelConfig& model, const KvFormat& format, const EngineRules& engine,
                               int tp, bool with_mtp) {
  std::vector<Alike> groups;
  for (const LayerCache& layer : model.layers) {
    if (layer.mtp && !with_mtp) continue;
    for (CachePart& part : cache_parts(model, layer, format, engine, tp)) {
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const Alike& group) {
        return group.part.kind == part.kind && group.part.window == part.window &&
               group.part.formula == part.formula;
      });
      if (same != groups.end()) {
        ++same->layers;
      } else {
        groups.push_back({std::move(part), 1});
      }
    }
  }
  return groups;
}

std::string_view title_of(const CachePart& part) {
  switch (part.kind) {
    case PartKind::kRow:
      return "latent rows";
    case PartKind::kHeads:
      return part.window > 0 ? "K and V of window layers" : "K and V heads";
    case PartKind::kIndex:
      return "index keys";
    case PartKind::kEntries:
      return part.window > 0 ? "entries of a window" : "compressed entries";
    case PartKind::kState:
      return part.tokens_per_entry > 1 ? "compressor state" : "recurrent state";
  }
  return "cache";
}

std::string_view key_of(const CachePart& part) {
  switch (part.kind) {
    case PartKind::kRow:
      return "cache.rows";
    case PartKind::kHeads:
      return part.window > 0 ? "cache.window_heads" : "cache.heads";
    case PartKind::kIndex:
      return "cache.index_keys";
    case PartKind::kEntries:
      return part.window > 0 ? "cache.window_entries" : "cache.entries";
    case PartKind::kState:
      return "cache.state";
  }
  return "cache";
}

void add_to(CacheCost& cost, const Alike& group, const std::string& source) {
  const CachePart& part = group.part;
  const auto layers = static_cast<double>(group.layers);
  const double per_token = layers * static_cast<double>(part.entry_bytes()) / part.tokens_per_entry;
  Line line{.key = std::string(key_of(part)),
            .title = std::string(title_of(part)),
            .formula = fmt::format("{} layers x {}", group.layers, part.formula),
            .source = source};
  if (part.kind == PartKind::kState) {
    cost.state_layers += group.layers;
    const std::int64_t bytes = times(group.layers, part.k_bytes);
    cost.state_bytes = plus(cost.state_bytes, bytes);
    line.title += ", a sequence";
    line.value = bytes;
  } else if (part.window > 0) {
    const std::int64_t bytes = times(group.layers, part_bytes(part, part.window));
    cost.window_layers += group.layers;
    cost.window_bytes = plus(cost.window_bytes, bytes);
    cost.window_bytes_per_token += per_token;
    line.title += ", a sequence";
    line.value = bytes;
    line.formula += fmt::format(" x {} tokens", num(part.window));
  } else {
    (part.kind == PartKind::kIndex ? cost.index_layers : cost.full_layers) += group.layers;
    (part.kind == PartKind::kIndex ? cost.index_bytes_per_token : cost.bytes_per_token) += per_token;
    if (part.kind != PartKind::kIndex) {
      cost.k_bytes_per_token += layers * static_cast<double>(part.k_bytes) / part.tokens_per_entry;
      cost.v_bytes_per_token += layers * static_cast<double>(part.v_bytes) / part.tokens_per_entry;
    }
    line.title += ", a token";
    if (part.tokens_per_entry == 1) {
      line.value = times(group.layers, part.entry_bytes());
    } else {
      line.value = per_token;
    }
  }
  cost.lines.push_back(std::move(line));
}

}  // namespace

CacheCost cache_cost(const ModelConfig& model, const KvFormat& format, const EngineRules& engine, int tp,
                     bool with_mtp) {
  CacheCost cost;
  std::string source = fmt::format("layers of {}; cache format {}", model.name, format.name);
  if (model.mla) {
    const StoredMla stored = stored_mla(model, engine);
    if (!stored.why.empty()) source += fmt::format("; {} keeps no latent of it: {}", engine.name, stored.why);
  }
  for (const Alike& group : alike_parts(model, format, engine, tp, with_mtp)) add_to(cost, group, source);
  return cost;
}

AttentionBytes attention_bytes(const ModelConfig& model) {
  constexpr std::int64_t kBf16 = 2;
  constexpr std::int64_t kGroups = 8;
  std::int64_t heads = model.num_heads;
  std::int64_t key = 0;
  std::int64_t key_per_head = 0;  // without the rotary part that MLA shares between heads
  std::int64_t value = 0;
  if (model.mla) {
    heads = model.mla->num_heads;
    key = model.mla->head_width();
    key_per_head = model.mla->qk_nope_head_dim;
    value = model.mla->v_head_dim;
  } else {
    const auto layer = std::find_if(model.layers.begin(), model.layers.end(), [](const LayerCache& l) {
      return l.head_dim_k > 0 && l.kind != AttentionKind::kCompressed && l.window == 0;
    });
    if (layer == model.layers.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has no layer with K and V heads to compare with", model.name));
    }
    key = key_per_head = layer->head_dim_k;
    value = layer->head_dim_v;
  }
  return {.mha = times(times(heads, key + value), kBf16),
          .mha_textbook = times(times(heads, key_per_head + value), kBf16),
          .gqa8 = kGroups * (key_per_head + value) * kBf16,
          .mqa = (key_per_head + value) * kBf16};
}

WindowSavings window_savings(std::int64_t length, std::int64_t window, std::int64_t sink, int block) {
  if (length < 0 || window < 1 || sink < 0 || block < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "length {}, window {}, sink {}, block {}: length and sink must not be negative, window and "
            "block at least 1",
            length, window, sink, block));
  }
  WindowSavings savings;
  const std::int64_t start = std::max<std::int64_t>(0, length - window);
  const std::int64_t sinks = std::min(sink, start);  // sinks inside the window are counted with it
  savings.tokens_read = (length - start) + sinks;
  savings.tokens_skipped = length - savings.tokens_read;
  savings.blocks_total = ceil_div(length, block);
  const std::int64_t first_window_block = start / block;
  const std::int64_t sink_blocks = std::min(ceil_div(sinks, block), first_window_block);
  savings.blocks_touched = savings.blocks_total - first_window_block + sink_blocks;
  savings.full_cache_tokens = length;
  savings.ring_cache_tokens = std::min(times(savings.blocks_touched, block), round_up(length, block));
  return savings;
}

}  // namespace mla::capacity
