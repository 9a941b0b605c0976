// SPDX-License-Identifier: Apache-2.0
#include "plan/hypotheses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/format_rules.hpp"

namespace mla::capacity {
namespace {

/// A choice and what it costs to assume it.
template <class T>
struct Choice {
  T value;
  int cost = 0;
};

template <class T>
bool contains(const std::vector<Choice<T>>& choices, const T& value) {
  return std::any_of(choices.begin(), choices.end(),
                     [&](const Choice<T>& choice) { return choice.value == value; });
}

std::optional<KvFormat> format_named(const std::string& name) {
  try {
    return find_kv_format(name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool taken(const KvFormat& format, const ModelConfig& model, const EngineRules& engine) {
  try {
    validate(format, model, engine);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Choice<KvFormat>> formats_of(const LogReading& log, const ModelConfig& model,
                                         const EngineRules& engine, int breadth) {
  constexpr int kUnnamed = 2;
  const bool only_fp8 = only_fp8_entries(model, engine);
  std::vector<Choice<KvFormat>> formats;
  const auto add = [&](const std::string& name, int cost) {
    const std::optional<KvFormat> format = format_named(name);
    const bool named = cost < kUnnamed && !only_fp8;  // by the log: a fork may well have it
    if (format && !named && !taken(*format, model, engine)) return;
    const bool known = std::any_of(formats.begin(), formats.end(), [&](const auto& choice) {
      return format && choice.value.name == format->name;
    });
    if (format && !known) formats.push_back({*format, cost});
  };
  const std::optional<KvFormat> k = format_named(log.cache_dtype);
  const std::optional<KvFormat> v = format_named(log.cache_dtype_v);
  if (k && v && k->name != v->name && !k->mla_only && !v->mla_only) {
    formats.push_back({mixed_kv_format(*k, *v), 0});
  }
  const bool fp8 = log.cache_dtype.starts_with("fp8");
  if (fp8 && model.indexer) add("fp8_ds_mla", 0);
  if (k) add(log.cache_dtype, fp8 && model.indexer ? 1 : 0);
  if (log.cache_dtype.empty()) add("bf16", 0);
  if (only_fp8) add("fp8", 0);
  if (breadth > 0 && engine.pools == PoolKind::kCells) {
    for (const char* name : {"f16", "q8_0", "q4_0", "q5_1", "q5_0", "q4_1"}) add(name, kUnnamed);
  } else if (breadth > 0) {
    for (const char* name : {"bf16", "fp8", "fp8_ds_mla", "fp8_per_token_head", "nvfp4", "nvfp4_ds_mla"}) {
      add(name, kUnnamed);
    }
  }
  return formats;
}

bool has_windows(const ModelConfig& model) {
  return std::any_of(model.layers.begin(), model.layers.end(),
                     [](const LayerCache& layer) { return layer.window > 0; });
}

/// Whether two rule sets of an engine make the same of this model's cache.
bool same_cache(const EngineRules& a, const EngineRules& b, const ModelConfig& model) {
  const bool windows = has_windows(model);
  const bool mixed = windows || model.count(AttentionKind::kRecurrent) > 0;
  const bool entries = model.count(AttentionKind::kCompressed) > 0;
  return a.token_count == b.token_count && a.mla_storage == b.mla_storage &&
         a.reserved_blocks == b.reserved_blocks && a.context_ranks == b.context_ranks &&
         a.sparse_block == b.sparse_block && (!model.indexer || a.index_keys == b.index_keys) &&
         default_block(model, a) == default_block(model, b) &&
         (!windows || (a.window == b.window && a.pool_share == b.pool_share)) &&
         (!mixed || a.group_padding_limit == b.group_padding_limit) &&
         (!entries || a.entry_pages == b.entry_pages);
}

/// The rules the log's version names, else all of the engine that differ for the model, the newest first.
std::vector<Choice<EngineRules>> engines_of(const LogReading& log, const ModelConfig& model, int breadth) {
  const std::string name = log.engine.empty() ? "vllm" : log.engine;
  std::vector<Choice<EngineRules>> engines;
  try {
    engines.push_back({find_engine(log.version.empty() ? name : name + "@" + log.version), 0});
  } catch (const Error&) {
    engines.push_back({find_engine(name), 0});
  }
  if (breadth > 0 && log.version.empty()) {
    int cost = 0;
    for (auto rules = all_engines().rbegin(); rules != all_engines().rend(); ++rules) {
      if (rules->name != name || rules->since == engines.front().value.since) continue;
      ++cost;
      const bool known = std::ranges::any_of(
          engines, [&](const auto& engine) { return same_cache(engine.value, *rules, model); });
      if (!known) engines.push_back({*rules, cost});
    }
  }
  if (!model.mla) {  // how an engine stores a latent is nothing to a model without one
    for (Choice<EngineRules>& engine : engines) engine.value.mla_storage = MlaStorage::kLatent;
  }
  // llama.cpp's families differ in what MLA and window layers keep; -mla and --swa-full say, or the numbers
  // do.
  const bool cells = engines.front().value.pools == PoolKind::kCells;
  if (!cells) return engines;
  for (Choice<EngineRules>& engine : engines) {
    if (log.mla_mode >= 0) {
      engine.value.mla_storage = log.mla_mode == 0   ? MlaStorage::kExpanded
                                 : log.mla_mode == 1 ? MlaStorage::kLatentAndValue
                                                     : MlaStorage::kLatent;
    }
    if (log.full_windows) engine.value.window = WindowRule::kFullLength;
  }
  const bool latent = model.count(AttentionKind::kMla) > 0;
  const bool windows = has_windows(model);
  std::vector<Choice<EngineRules>> all;
  for (const Choice<EngineRules>& engine : engines) {
    for (const MlaStorage storage :
         {MlaStorage::kLatent, MlaStorage::kLatentAndValue, MlaStorage::kExpanded}) {
      for (const WindowRule window : {WindowRule::kWithBatch, WindowRule::kFullLength, WindowRule::kExact}) {
        Choice<EngineRules> choice = engine;
        choice.cost +=
            (storage != engine.value.mla_storage ? 1 : 0) + (window != engine.value.window ? 1 : 0);
        choice.value.mla_storage = storage;
        choice.value.window = window;
        const bool matters =
            (storage == engine.value.mla_storage || latent) && (window == engine.value.window || windows);
        if (choice.cost == engine.cost || (breadth > 0 && matters)) all.push_back(choice);
      }
    }
  }
  return all;
}

std::vector<Choice<int>> blocks_of(const LogReading& log, const ModelConfig& model, const EngineRules& engine,
                                   int breadth) {
  std::vector<Choice<int>> blocks;
  if (log.block > 0) blocks.push_back({log.block, 0});
  const int usual = default_block(model, engine);
  if (!contains(blocks, usual)) blocks.push_back({usual, log.block > 0 ? 2 : 0});
  const bool fixed = model.count(AttentionKind::kCompressed) > 0;  // DeepSeek-V4's pages are
  if (breadth > 0 && engine.pools != PoolKind::kCells && !fixed) {
    const bool alone = engine.pools == PoolKind::kPoolPerKind;  // in shared blocks only where the log says so
    for (const int block : {16, 32, 64, 128, 256, 1}) {
      if (!contains(blocks, block) && (block > 1 || alone)) blocks.push_back({block, 2});
    }
  }
  return blocks;
}

/// The tp that the ranks of the log's lines imply ("TP3": at least 4), 1 without any.
int tp_of_ranks(const LogReading& log) {
  int tp = 1;
  while (tp <= log.last_tp_rank && tp < 1024) tp *= 2;
  return tp;
}

std::vector<Choice<Layout>> layouts_of(const LogReading& log, const ModelConfig& model,
                                       const EngineRules& engine, int breadth) {
  Layout said{.tp = log.tp > 0 ? log.tp : tp_of_ranks(log),
              .dp = 1,
              .pp = std::max(1, log.pp),
              .dcp = std::max(1, log.dcp)};
  said.dp = std::max(1, log.dp);
  if (log.engine == "sglang" && said.tp % said.dp == 0) said.tp /= said.dp;  // its replicas are inside tp
  if (model.moe && log.ep > 1 && said.tp * said.dp % log.ep == 0) said.ep = log.ep;
  std::vector<Choice<Layout>> layouts{{said, 0}};
  const auto add = [&](int tp, int pp, int dcp, int cost) {
    Layout layout = said;
    layout.tp = tp;
    layout.pp = pp;
    layout.dcp = dcp;
    if (!contains(layouts, layout)) layouts.push_back({layout, cost});
  };
  if (breadth < 2 || engine.pools == PoolKind::kCells)
    return layouts;  // llama.cpp counts all devices together
  // Latent rows and compressed entries are whole on every rank: tp changes nothing but what dcp may be.
  const bool sharded = std::any_of(model.layers.begin(), model.layers.end(), [](const LayerCache& layer) {
    return layer.kind != AttentionKind::kMla && layer.kind != AttentionKind::kCompressed &&
           layer.kind != AttentionKind::kNone;
  });
  for (const int tp : {1, 2, 4, 8, 16}) {
    if (tp != said.tp && (log.tp > 0 || !sharded)) continue;
    add(tp, said.pp, said.dcp, 2);
    for (const int dcp : {2, 4, 8}) {
      const int ranks = log.tp > 0 || sharded ? tp : std::max(tp, dcp);
      if (ranks % dcp == 0 && log.dcp == 0) add(ranks, said.pp, dcp, 4);
    }
    for (const int pp : {2, 4, 8}) {
      if (log.pp == 0 && pp <= model.num_layers) add(tp, pp, said.dcp, 4);
    }
  }
  return layouts;
}

/// What prefix caching makes a sequence keep of recurrent layers.
std::vector<Choice<StateBlocks>> states_of(const LogReading& log, const ModelConfig& model,
                                           const EngineRules& engine) {
  const bool matters = model.count(AttentionKind::kRecurrent) > 0 && engine.pools == PoolKind::kSharedBlocks;
  if (!matters) return {{StateBlocks::kOne, 0}};
  return {{StateBlocks::kOne, log.prefix_caching ? 1 : 0},
          {StateBlocks::kAligned, log.prefix_caching ? 0 : 1}};
}

/// Prefill chunks: engines' defaults differ by GPU, and windows hold one; two where vLLM schedules a step before the last
/// one is settled (from 0.26 on, vllm#47728).
struct Chunks {
  std::int64_t tokens = 8192;
  int count = 1;
};
std::vector<Choice<Chunks>> chunks_of(const LogReading& log, const ModelConfig& model,
                                      const EngineRules& engine, int breadth) {
  const bool matters = has_windows(model) && breadth > 0 && engine.window == WindowRule::kWithChunk;
  const bool ahead = engine.token_count == TokenCount::kConcurrency;  // the newest
  if (log.batched_tokens > 0) {
    if (!matters || !ahead) return {{{log.batched_tokens}, 0}};
    return {{{log.batched_tokens}, 0}, {{log.batched_tokens, 2}, 1}};
  }
  if (!matters) return {{{8192}, 0}};
  if (!ahead) return {{{8192}, 0}, {{2048}, 1}, {{16384}, 1}};
  return {{{8192}, 0}, {{2048}, 1}, {{16384}, 1}, {{4096}, 2}};
}

}  // namespace

PoolInputs Hypothesis::inputs(const ModelConfig& model, const LogReading& log) const {
  return {.model = model,
          .engine = engine,
          .format = format,
          .layout = layout,
          .block = block,
          .max_batched_tokens = batched_tokens,
          .prefill_chunks = chunks,
          .with_mtp = with_mtp,
          .speculative_tokens = with_mtp ? log.drafted : 0,
          .state_blocks = state_blocks,
          .micro_batch = log.micro_batch > 0 ? log.micro_batch : 512,
          .window_sequences = std::max(1, log.sequences)};
}

bool possible(Hypothesis& hypothesis, const ModelConfig& model, const LogReading& log) {
  try {
    validate(hypothesis.layout, model, hypothesis.engine);
    const PoolSet pools = pool_geometry(hypothesis.inputs(model, log), 0);
    hypothesis.real_block = pools.block;
    return !pools.pools.empty();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    return false;
  }
}

std::string to_text(const Hypothesis& h) {
  std::string text = fmt::format("cache format {}", h.format.name);
  if (h.format.k.name != h.format.v.name) text += fmt::format(" and {} for V", h.format.v.name);
  if (h.engine.pools != PoolKind::kCells) text += fmt::format(", blocks of {}", h.real_block);
  text += fmt::format(", {}", to_text(h.layout));
  if (h.with_mtp) text += ", prediction layers cached";
  if (h.state_blocks == StateBlocks::kAligned) text += ", aligned prefix caching of states";
  if (h.chunks == 2)
    text += fmt::format(", two prefill chunks of {} in flight", h.batched_tokens);
  else if (h.batched_tokens != 8192)
    text += fmt::format(", prefill chunks of {}", h.batched_tokens);
  if (h.engine.mla_storage == MlaStorage::kExpanded) text += ", MLA stored as K and V heads";
  if (h.engine.mla_storage == MlaStorage::kLatentAndValue) text += ", the latent stored again as V";
  text += fmt::format(", rules of {}{}{}", h.engine.name, h.engine.since.empty() ? "" : " ", h.engine.since);
  return text;
}

std::vector<Hypothesis> hypotheses(const LogReading& log, const ModelConfig& model, int breadth) {
  std::vector<Hypothesis> all;
  const bool drafts = log.drafted > 0 && model.num_mtp_layers > 0;
  // Prediction layers, states and chunks of one engine, format, layout and block.
  const auto add_variants = [&](const Hypothesis& base) {
    for (const bool mtp : {drafts, !drafts}) {
      if (mtp != drafts && (model.num_mtp_layers == 0 || breadth == 0)) continue;
      for (const auto& state : states_of(log, model, base.engine)) {
        for (const auto& chunk : chunks_of(log, model, base.engine, breadth)) {
          Hypothesis one = base;
          one.with_mtp = mtp;
          one.state_blocks = state.value;
          one.batched_tokens = chunk.value.tokens;
          one.chunks = chunk.value.count;
          one.cost += (mtp != drafts ? 1 : 0) + state.cost + chunk.cost;
          all.push_back(std::move(one));
        }
      }
    }
  };
  for (const auto& engine : engines_of(log, model, breadth)) {
    for (const auto& format : formats_of(log, model, engine.value, breadth)) {
      for (const auto& layout : layouts_of(log, model, engine.value, breadth)) {
        for (const auto& block : blocks_of(log, model, engine.value, breadth)) {
          add_variants({.engine = engine.value,
                        .format = format.value,
                        .layout = layout.value,
                        .block = block.value,
                        .cost = engine.cost + format.cost + layout.cost + block.cost});
        }
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.cost < b.cost; });
  return all;
}

}  // namespace mla::capacity
