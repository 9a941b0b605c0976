// SPDX-License-Identifier: Apache-2.0
// Bytes that a given number of tokens takes.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/case_asked.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMiB = 1024.0 * 1024.0;

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
  int block = in.block() > 0 ? in.block() : default_block(asked.one.model, request.engine);
  // A pool holds whole pages: where nobody says their size, it divides the tokens.
  const bool pages = in.block() == 0 && request.engine.pools != PoolKind::kCells;
  while (pages && block > 1 && in.tokens(asked.index) % block != 0) block /= 2;
  const std::int64_t spare = std::int64_t{request.engine.spare_blocks} * block;
  constexpr std::int64_t kCells = 256;  // llama.cpp pads contexts to it
  Held held;
  if (request.engine.pools == PoolKind::kCells) {
    held.streams = in.streams();
    if (in.number({"cells"})) {
      held.full = held.window = in.tokens(asked.index);
    } else {  // n_ctx is shared out among the streams
      held.full = round_up(ceil_div(in.tokens(asked.index), held.streams), kCells);
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

constexpr Quantity kQuantities[] = {
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

}  // namespace

std::span<const Quantity> stored_quantities() noexcept {
  return kQuantities;
}

}  // namespace mla::capacity
