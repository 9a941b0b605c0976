// SPDX-License-Identifier: Apache-2.0
// Bytes that a log gives for a number of tokens or cells.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "plan/arithmetic.hpp"
#include "plan/layer_parts.hpp"
#include "plan/trial.hpp"

namespace mla::capacity {
namespace {

/// Which layers a line may speak of.
enum class Scope : std::uint8_t {
  kAll,
  kFull,    ///< full-length layers alone: engines with two pools print a line each
  kWindow,  ///< window layers alone
  kRows,    ///< index keys left out: SGLang before they were counted, llama.cpp in the line of its main cache
  kIndex,   ///< index keys alone, in a cache of their own (llama.cpp)
  kOneLayer,  ///< the pool of a drafter with one layer
  kDense,     ///< DeepSeek-V4 in llama.cpp: compressed entries of 4 tokens alone
  kSparse,    ///< those of 128
};

/// DeepSeek-V4 in llama.cpp, which has a cache for every kind of entry.
bool entry_caches(const ModelConfig& model, const PoolInputs& inputs) {
  return inputs.engine.pools == PoolKind::kCells && model.count(AttentionKind::kCompressed) > 0;
}

bool in_entry_cache(Scope scope, const CachePart& part) {
  constexpr int kDenseRatio = 4;
  const bool compressed = part.kind == PartKind::kEntries && part.window == 0;
  switch (scope) {
    case Scope::kWindow:
      return part.window > 0;
    case Scope::kIndex:
      return part.kind == PartKind::kIndex;
    case Scope::kDense:
      return compressed && part.tokens_per_entry == kDenseRatio;
    case Scope::kSparse:
      return compressed && part.tokens_per_entry != kDenseRatio;
    default:
      return true;
  }
}

/// Whether a line that announced a cache of this kind can speak of the scope.
bool fits(CacheOf cache, Scope scope) {
  switch (cache) {
    case CacheOf::kUnknown:
      return true;
    case CacheOf::kFull:
      return scope != Scope::kWindow;
    case CacheOf::kWindow:
      return scope != Scope::kFull;
    case CacheOf::kDense:
      return scope == Scope::kDense;
    case CacheOf::kSparse:
      return scope == Scope::kSparse;
    case CacheOf::kIndex:
      return scope == Scope::kIndex;
  }
  return true;
}

std::string_view text_of(Scope scope, const EngineRules& engine) {
  switch (scope) {
    case Scope::kAll:
      return "";
    case Scope::kFull:
      return " in the full-length layers";
    case Scope::kWindow:
      return " in the window layers";
    case Scope::kRows:
      return engine.pools == PoolKind::kCells ? " of rows alone" : kNoIndexKeys;
    case Scope::kIndex:
      return " of index keys alone";
    case Scope::kOneLayer:
      return " of one layer: a drafter's own pool";
    case Scope::kDense:
      return " of entries of 4 tokens alone";
    case Scope::kSparse:
      return " of entries of 128 tokens alone";
  }
  return "";
}

/// Tokens that the bytes of a line belong to.
struct Held {
  double tokens = 0;
  int streams = 1;
  int layers = 0;
  bool cells = false;  ///< exactly so many in every layer, windows too
  CacheOf cache = CacheOf::kUnknown;
};

std::vector<Held> held_by(const LogReading& log, const LogNumber& logged) {
  std::vector<Held> found;
  for (const bool same_line : {true, false}) {
    for (const LogNumber& other : log.numbers) {
      const int distance = std::abs(other.line - logged.line);
      if (other.kind != LogKind::kTokens || (same_line ? distance != 0 : distance > 3)) continue;
      found.push_back({other.value, other.streams, other.layers, other.layers > 0, other.cache});
    }
    if (!found.empty()) return found;
  }
  if (log.max_length > 0) found.push_back({.tokens = static_cast<double>(log.max_length)});
  return found;
}

bool in_scope(Scope scope, const LayerCache& layer) {
  if (scope == Scope::kFull) return layer.window == 0;
  if (scope == Scope::kWindow) return layer.window > 0;
  return true;
}

struct KeysAndValues {
  double keys = 0, values = 0;
  int layers = 0;
};

KeysAndValues stored(const ModelConfig& model, const PoolInputs& inputs, const Held& held, Scope scope) {
  KeysAndValues sum;
  const double spare = static_cast<double>(inputs.engine.spare_blocks) * inputs.block;
  const auto whole = static_cast<std::int64_t>(held.tokens);
  const bool entries = held.cells && entry_caches(model, inputs);
  LayerParts parts(model, inputs.format, inputs.engine, inputs.layout.tp);
  for (const LayerCache& layer : model.layers) {
    if ((layer.mtp && !inputs.with_mtp) || !in_scope(scope, layer)) continue;
    if (scope == Scope::kOneLayer && (sum.layers > 0 || layer.window > 0)) continue;
    bool keeps = false;
    for (const CachePart& part : parts.of(layer)) {
      const bool index = part.kind == PartKind::kIndex;
      if (part.kind == PartKind::kState || (scope == Scope::kRows && index) ||
          (scope == Scope::kIndex && !index) || (entries && !in_entry_cache(scope, part)))
        continue;
      double kept = held.tokens + spare;
      if (part.window > 0 && !held.cells && scope == Scope::kAll) {
        kept = static_cast<double>(inputs.engine.window == WindowRule::kWithBatch
                                       ? inputs.window_cells(part.window, whole)
                                       : std::min(part.window, whole + static_cast<std::int64_t>(spare)));
      } else if (inputs.layout.dcp > 1 &&
                 !(part.kind == PartKind::kIndex && inputs.engine.index_whole_under_dcp)) {
        kept = held.tokens / inputs.layout.dcp + spare;
      }
      keeps = true;
      const double kept_entries = held.streams * kept / (entries ? 1 : part.tokens_per_entry);
      sum.keys += kept_entries * static_cast<double>(part.k_bytes);
      sum.values += kept_entries * static_cast<double>(part.v_bytes);
    }
    sum.layers += keeps ? 1 : 0;
  }
  return sum;
}

double wanted_of(const LogNumber& logged, const KeysAndValues& sum) {
  switch (logged.kind) {
    case LogKind::kKeyBytes:
      return sum.keys;
    case LogKind::kValueBytes:
      return sum.values;
    default:
      return sum.keys + sum.values;
  }
}

}  // namespace

std::vector<Trial::Option> Trial::bytes(const LogNumber& logged) const {
  std::vector<Option> found;
  std::vector<Scope> scopes{Scope::kAll};
  const bool windows = std::any_of(model_.layers.begin(), model_.layers.end(),
                                   [](const LayerCache& layer) { return layer.window > 0; });
  if (windows) scopes.insert(scopes.end(), {Scope::kFull, Scope::kWindow});
  if (inputs_.engine.pools == PoolKind::kCells && inputs_.engine.index_keys == IndexKeys::kElements &&
      model_.indexer)
    scopes.insert(scopes.end(), {Scope::kRows, Scope::kIndex});
  if (inputs_.engine.pools == PoolKind::kPoolPerKind) {
    if (model_.indexer) scopes.push_back(Scope::kRows);
    scopes.push_back(Scope::kOneLayer);
  }
  if (entry_caches(model_, inputs_))
    scopes = {Scope::kAll, Scope::kWindow, Scope::kDense, Scope::kSparse, Scope::kIndex};
  for (const Held& held : held_by(log_, logged)) {
    const std::size_t before = found.size();
    for (const Scope scope : scopes) {
      if (!fits(held.cache, scope)) continue;
      const KeysAndValues sum = stored(model_, inputs_, held, scope);
      if (sum.layers == 0 || (held.layers > 0 && sum.layers != held.layers)) continue;
      const double value = wanted_of(logged, sum) / logged.unit;
      const int spare = inputs_.engine.spare_blocks * inputs_.block;
      found.push_back({Range({value, value}), how([&] {
                         return fmt::format(
                             "{} tokens{}{}{}", count_text(held.tokens),
                             spare > 0 ? fmt::format(" and a spare page of {}", spare) : std::string(),
                             held.streams > 1 ? fmt::format(" x {} streams", held.streams) : std::string(),
                             text_of(scope, inputs_.engine));
                       })});
    }
    if (found.size() > before || held.layers == 0) continue;
    const KeysAndValues sum = stored(model_, inputs_, held, Scope::kAll);
    const double value = wanted_of(logged, sum) / logged.unit;
    found.push_back({Range({value, value}), how([&] {
                       return fmt::format("{} tokens{}: the line's are {}, the model's {}",
                                          count_text(held.tokens), kOtherLayers, held.layers, sum.layers);
                     })});
  }
  return found;
}

/// States of so many sequences, and of one that padding writes to.
std::vector<Trial::Option> Trial::state_bytes(const LogNumber& logged) const {
  double one = 0;
  LayerParts parts(model_, inputs_.format, inputs_.engine, inputs_.layout.tp);
  for (const LayerCache& layer : model_.layers) {
    if (layer.mtp && !inputs_.with_mtp) continue;
    for (const CachePart& part : parts.of(layer)) {
      if (part.kind == PartKind::kState) one += static_cast<double>(part.k_bytes);
    }
  }
  if (one <= 0) return {{Range({0.0, 0.0}), how([] { return std::string("no layer keeps a state"); })}};
  const double value = one * static_cast<double>(logged.length + 1) / logged.unit;
  return {{Range({value, value}), how([&] {
             return fmt::format("{} and a spare one of {} B", count_text(static_cast<double>(logged.length)),
                                count_text(one));
           })}};
}

/// Cells that llama.cpp gives full-length and window layers for the logged context.
void Trial::add_cells(std::vector<Option>& found, const LogNumber& logged) const {
  if (log_.max_length < 1) return;
  const std::int64_t context = ceil_div(log_.max_length, logged.streams);
  const auto add = [&](std::int64_t cells, std::string how) {
    const auto value = static_cast<double>(cells);
    found.push_back({Range({value, value}), std::move(how)});
  };
  add(context, fmt::format("context of {}", num(context)));
  add(round_up(context, 256), fmt::format("context of {}, padded to 256", num(context)));
  std::set<std::int64_t> ratios;
  for (const LayerCache& layer : model_.layers) {
    if (layer.compress_ratio > 0) ratios.insert(layer.compress_ratio);
  }
  for (const std::int64_t ratio : ratios) {
    add(round_up(ceil_div(context, ratio), 256),
        fmt::format("context of {} in entries of {}, padded to 256", num(context), ratio));
  }
  std::set<std::int64_t> windows;
  for (const LayerCache& layer : model_.layers) windows.insert(layer.window);
  for (const std::int64_t window : windows) {
    if (window == 0 || inputs_.engine.window != WindowRule::kWithBatch) continue;
    add(inputs_.window_cells(window, context),
        fmt::format("window {}{} + micro-batch {}, padded to 256", num(window),
                    inputs_.window_sequences > 1 ? fmt::format(" x {} sequences", inputs_.window_sequences)
                                                 : std::string(),
                    num(inputs_.micro_batch)));
  }
}

}  // namespace mla::capacity
