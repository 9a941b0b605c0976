// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/case_inputs.hpp"
#include "plan/cases.hpp"
#include "plan/plan_request.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMiB = 1024.0 * 1024.0;

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

Computed exactly(double value, std::string formula) {
  return {value, value, std::move(formula)};
}

/// What a quantity is asked of: the case, and which value of a list.
struct Asked {
  const CapacityCase& one;
  CaseInputs in;
  std::string_view key;
  std::size_t index;
};

PlanRequest request_of(const Asked& asked) {
  PlanRequest request;
  request.gpu_name = "of the log";
  request.gpu_memory_bytes = std::int64_t{1} << 40;
  request.layout = asked.in.layout();
  request.engine = asked.in.rules();
  request.cache = asked.in.cache_format();
  request.block = asked.in.block();
  request.with_mtp = asked.in.mtp();
  request.max_batched_tokens = asked.in.count({"max_num_batched_tokens"}, 8192);
  request.speculative_tokens =
      static_cast<int>(std::min<std::int64_t>(asked.in.count({"num_speculative_tokens"}, 0), 1024));
  request.state_blocks = asked.in.state_blocks();
  request.micro_batch = asked.in.count({"n_ubatch"}, 512);
  request.window_sequences = asked.in.window_sequences();
  const std::optional<double> length = asked.in.number({"max_model_len", "runs.max_model_len"}, asked.index);
  constexpr double kMostTokens = 1e12;
  if (length && !(*length >= 0 && *length <= kMostTokens))
    refuse(fmt::format("max_model_len {} is no length", *length));
  request.context = length ? static_cast<std::int64_t>(*length) : 0;
  // A short config of a case about the cache may leave the experts out, and they do not matter to it.
  if (!asked.one.model.moe) request.layout.ep = 0;
  validate(request.layout, asked.one.model);
  if (!length) request.engine.token_count = TokenCount::kBlocks;  // the other count needs a length
  return request;
}

/// The cache formula of one rank: "61 layers x (512 + 64) x 2 B + 61 layers x (128 + 4 scale) B".
std::string cost_formula(const Asked& asked, const PlanRequest& request) {
  const CacheCost cost =
      cache_cost(asked.one.model, request.cache, request.engine, request.layout.tp, request.with_mtp);
  std::string text;
  for (const Line& line : cost.lines) text += (text.empty() ? "" : " + ") + line.formula;
  return text;
}

/// A number of the plan at both ends of the budget's rounding.
Computed from_plan(const Asked& asked, PlanRequest request, std::size_t run,
                   const std::function<double(const MemoryPlan&)>& value) {
  std::vector<std::int64_t> low;
  std::vector<std::int64_t> high;
  std::string budgets;
  for (std::size_t stage = 0; stage < static_cast<std::size_t>(request.layout.pp); ++stage) {
    const CaseInputs::Budget budget = asked.in.budget(stage, run);
    low.push_back(budget.low);
    high.push_back(budget.high);
    budgets += (budgets.empty() ? "" : ", ") + budget.text;
  }
  const auto at = [&](const std::vector<std::int64_t>& bytes) {
    request.cache_bytes = bytes;
    return plan_memory(asked.one.model, request);
  };
  const MemoryPlan smallest = at(low);
  const MemoryPlan largest = at(high);
  return {value(smallest), value(largest),
          fmt::format("{} in blocks of {} tokens: {}", budgets, largest.block, cost_formula(asked, request))};
}

/// "kv_tokens_2nd_run" is kv_tokens of the second budget.
std::size_t run_of(const Asked& asked) {
  return asked.key.ends_with("_2nd_run") ? 1 : asked.index;
}

Computed num_blocks(const Asked& asked) {
  return from_plan(asked, request_of(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return static_cast<double>(plan.blocks); });
}

Computed kv_tokens(const Asked& asked) {
  if (const std::optional<double> blocks = asked.in.number({"num_blocks"})) {
    const int block = asked.in.block();
    return exactly(*blocks * block, fmt::format("{} blocks x {}", num(*blocks), block));
  }
  return from_plan(asked, request_of(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return static_cast<double>(plan.tokens_logged); });
}

/// The concurrency that the tokens logged by the same run stand for, where one pool of one group holds them:
/// a budget line may belong to another rank, the two pool lines never do.
std::optional<Computed> concurrency_of_tokens(const Asked& asked) {
  const PlanRequest request = request_of(asked);
  const PoolSet pools = pool_geometry(pool_inputs(asked.one.model, request), 0);
  if (pools.pools.size() != 1 || pools.pools.front().groups.size() != 1 || request.context < 1)
    return std::nullopt;
  const std::string tokens_key =
      "kv_tokens" + std::string(asked.key.substr(std::string_view("max_concurrency").size()));
  for (const Expectation& other : asked.one.expected) {
    if (other.key != tokens_key || other.index != asked.index) continue;
    const std::int64_t blocks =
        sequence_blocks(pool_inputs(asked.one.model, request), pools.pools.front(), request.context);
    const double pool = other.value / static_cast<double>(pools.block) / request.layout.dcp;
    return exactly(
        pool / static_cast<double>(blocks),
        fmt::format("{} tokens logged / ({} blocks of {})", num(other.value), num(blocks), pools.block));
  }
  return std::nullopt;
}

Computed max_concurrency(const Asked& asked) {
  if (const std::optional<Computed> by_tokens = concurrency_of_tokens(asked)) return *by_tokens;
  return from_plan(asked, request_of(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return plan.concurrency_logged; });
}

/// vLLM's estimate counts the null block as usable and, before its fix, all layers against one rank.
PlanRequest estimate_request(const Asked& asked) {
  PlanRequest request = request_of(asked);
  request.engine.reserved_blocks = 0;
  if (asked.key.ends_with("_as_logged")) request.layout = {.tp = request.layout.tp};
  return request;
}

Computed estimated_max_len(const Asked& asked) {
  return from_plan(asked, estimate_request(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return static_cast<double>(plan.longest_context); });
}

Computed need_gib(const Asked& asked) {
  const PlanRequest request = estimate_request(asked);
  const PoolInputs inputs = pool_inputs(asked.one.model, request);
  if (request.context < 1) refuse("the inputs lack max_model_len");
  const auto stage = std::min(asked.index, static_cast<std::size_t>(request.layout.pp) - 1);
  const PoolSet pools = pool_geometry(inputs, static_cast<int>(stage));
  return exactly(static_cast<double>(sequence_bytes(inputs, pools, request.context)) / kGiB,
                 fmt::format("{} tokens in blocks of {}: {}", num(request.context), pools.block,
                             cost_formula(asked, request)));
}

// ---- bytes of a given number of tokens --------------------------------------------------------------------

enum class Half : std::uint8_t { kBoth, kKeys, kValues, kRope, kLatent };
enum class Layers : std::uint8_t { kAll, kFull, kWindow };

double part_width(const Asked& asked, const CachePart& part, Half half) {
  const auto bytes = static_cast<double>(part.k_bytes);
  const MlaDims* dims = asked.one.model.mla ? &*asked.one.model.mla : nullptr;
  switch (half) {
    case Half::kBoth:
      return static_cast<double>(part.entry_bytes());
    case Half::kKeys:
      return bytes;
    case Half::kValues:
      return static_cast<double>(part.v_bytes);
    case Half::kRope:
      return dims == nullptr ? 0 : bytes * dims->qk_rope_head_dim / dims->latent_width();
    case Half::kLatent:
      return dims == nullptr ? 0 : bytes * dims->kv_lora_rank / dims->latent_width();
  }
  return 0;
}

/// Tokens that a pool or a context of the case holds, by what the inputs say.
struct Held {
  std::int64_t full = 0;     ///< in each full-length layer, an engine's spare page included
  std::int64_t window = -1;  ///< in each window layer; -1: by the engine's rule
  std::int64_t streams = 1;  ///< llama.cpp: caches of so many cells
};

Held held_by(const Asked& asked, const PlanRequest& request) {
  const CaseInputs& in = asked.in;
  const int block = in.block() > 0 ? in.block() : default_block(asked.one.model, request.engine);
  const std::int64_t spare = std::int64_t{request.engine.spare_blocks} * block;
  Held held;
  if (request.engine.pools == PoolKind::kCells) {
    held.streams = in.streams();
    if (in.number({"cells"})) {
      held.full = held.window = in.tokens(asked.index);
    } else {  // n_ctx is shared out among the streams
      held.full = ceil_div(in.tokens(asked.index), held.streams);
    }
    return held;
  }
  held.full = plus(in.tokens(asked.index), spare);
  if (in.number({"cells"})) held.window = held.full;
  if (in.number({"swa_tokens"})) held.window = plus(in.count({"swa_tokens"}, 0), spare);
  return held;
}

double stored_bytes(const Asked& asked, Half half, Layers which) {
  const PlanRequest request = request_of(asked);
  const PoolInputs inputs = pool_inputs(asked.one.model, request);
  const Held held = held_by(asked, request);
  double bytes = 0;
  for (const LayerCache& layer : asked.one.model.layers) {
    if (layer.mtp && !request.with_mtp) continue;
    const bool windowed = layer.window > 0;
    if (which != Layers::kAll && (which == Layers::kWindow) != windowed) continue;
    for (const CachePart& part :
         cache_parts(asked.one.model, layer, request.cache, request.engine, request.layout.tp)) {
      if (part.kind == PartKind::kState) continue;
      std::int64_t kept = held.full;
      if (windowed && held.window >= 0) {
        kept = held.window;
      } else if (part.window > 0) {
        kept = request.engine.window == WindowRule::kWithBatch ? inputs.window_cells(part.window, held.full)
                                                               : std::min(held.full, part.window);
      } else if (!(part.kind == PartKind::kIndex && request.engine.index_whole_under_dcp)) {
        kept = ceil_div(kept, request.layout.dcp);
      }
      bytes += static_cast<double>(held.streams) * part_width(asked, part, half) *
               static_cast<double>(ceil_div(kept, part.tokens_per_entry));
    }
  }
  return bytes;
}

Computed stored(const Asked& asked, Half half, Layers which, double unit) {
  return exactly(stored_bytes(asked, half, which) / unit,
                 fmt::format("{} tokens x {}", num(asked.in.tokens(asked.index)),
                             cost_formula(asked, request_of(asked))));
}

double unit_of(std::string_view key) {
  return key.ends_with("_gib") ? kGiB : key.ends_with("_mib") ? kMiB : 1.0;
}

template <Half half, Layers which>
Computed bytes_of(const Asked& asked) {
  return stored(asked, half, which, unit_of(asked.key));
}

/// llama.cpp's c^KV: the whole row, or its latent part where k^R is kept apart.
Computed c_kv(const Asked& asked) {
  const bool split = asked.in.number({"split"}).has_value() || asked.in.word("layout").starts_with("split");
  return split ? bytes_of<Half::kLatent, Layers::kAll>(asked) : bytes_of<Half::kKeys, Layers::kAll>(asked);
}

/// The whole of a sequence's cache under one way of storing MLA, for "tokens": {"absorbed": ..., ...}.
template <MlaStorage storage>
Computed stored_as(const Asked& asked) {
  const std::string name = storage == MlaStorage::kExpanded ? "tokens.non_absorbed" : "tokens.absorbed";
  PlanRequest request = request_of(asked);
  request.engine.mla_storage = storage;
  const double tokens = asked.in.need({name, "n_ctx", "kv_tokens"});
  const CacheCost cost = cache_cost(asked.one.model, request.cache, request.engine, request.layout.tp);
  return exactly(tokens * cost.bytes_per_token / unit_of(asked.key),
                 fmt::format("{} tokens x {}", num(tokens), cost_formula(asked, request)));
}

// ---- layouts ----------------------------------------------------------------------------------------------

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
  double bytes = static_cast<double>(plan.bytes);
  for (const Line& line : plan.lines) {
    const bool absent = (line.key == "weights.embeddings.tokens" && !asked.in.flag("embed_on_stage", true)) ||
                        (line.key == "weights.embeddings.head" && !asked.in.flag("lm_head_on_stage", true));
    if (absent) bytes -= static_cast<double>(std::get<std::int64_t>(line.value));
  }
  return exactly(bytes / kGiB, fmt::format("{} parts of {} in layout {}", plan.lines.size(),
                                           asked.one.model_name, to_text(layout)));
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

struct Quantity {
  std::string_view name;
  Computed (*compute)(const Asked&);
};
constexpr Quantity kQuantities[] = {
    {"num_blocks", num_blocks},
    {"kv_tokens", kv_tokens},
    {"max_concurrency", max_concurrency},
    {"estimated_max_len", estimated_max_len},
    {"need_gib", need_gib},
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
    {"kv_bytes", bytes_of<Half::kBoth, Layers::kAll>},
    {"kv_gib", bytes_of<Half::kBoth, Layers::kAll>},
    {"kv_mib", bytes_of<Half::kBoth, Layers::kAll>},
    {"total_gib", bytes_of<Half::kBoth, Layers::kAll>},
    {"total_mib", bytes_of<Half::kBoth, Layers::kAll>},
    {"k_gib", bytes_of<Half::kKeys, Layers::kAll>},
    {"v_gib", bytes_of<Half::kValues, Layers::kAll>},
    {"k_mib", bytes_of<Half::kKeys, Layers::kAll>},
    {"v_mib", bytes_of<Half::kValues, Layers::kAll>},
    {"full_k_gib", bytes_of<Half::kKeys, Layers::kFull>},
    {"full_v_gib", bytes_of<Half::kValues, Layers::kFull>},
    {"swa_k_gib", bytes_of<Half::kKeys, Layers::kWindow>},
    {"swa_v_gib", bytes_of<Half::kValues, Layers::kWindow>},
    {"full_k_mib", bytes_of<Half::kKeys, Layers::kFull>},
    {"full_v_mib", bytes_of<Half::kValues, Layers::kFull>},
    {"full_mib", bytes_of<Half::kBoth, Layers::kFull>},
    {"swa_k_mib", bytes_of<Half::kKeys, Layers::kWindow>},
    {"swa_v_mib", bytes_of<Half::kValues, Layers::kWindow>},
    {"swa_mib", bytes_of<Half::kBoth, Layers::kWindow>},
    {"c_kv_mib", c_kv},
    {"kv_t_mib", bytes_of<Half::kValues, Layers::kAll>},
    {"k_r_mib", bytes_of<Half::kRope, Layers::kAll>},
    {"absorbed_gib", stored_as<MlaStorage::kLatent>},
    {"non_absorbed_gib", stored_as<MlaStorage::kExpanded>},
};

/// The quantity of a key without what says of which run, rank or group: "kv_tokens_2nd_run" -> "kv_tokens".
std::string_view base_of(std::string_view key) {
  key = key.substr(0, key.find('.'));
  for (const std::string_view suffix : {"_2nd_run", "_as_logged", "_true_per_rank", "_per_rank"}) {
    if (key.ends_with(suffix)) return key.substr(0, key.size() - suffix.size());
  }
  return key;
}

}  // namespace

Computed compute(const CapacityCase& one, std::string_view key, std::size_t index) {
  const std::string_view base = base_of(key);
  for (const Quantity& quantity : kQuantities) {
    if (quantity.name == base) return quantity.compute({one, CaseInputs(one), key, index});
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no quantity {}", text::quoted(key)),
              text::suggestion(base, quantity_names()));
}

std::vector<std::string> quantity_names() {
  std::vector<std::string> names;
  for (const Quantity& quantity : kQuantities) names.emplace_back(quantity.name);
  return names;
}

}  // namespace mla::capacity
