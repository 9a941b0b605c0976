// SPDX-License-Identifier: Apache-2.0
#include "plan/savings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/pools.hpp"

namespace mla::capacity {
namespace {

[[noreturn]] void refuse(const std::string& sentence, const std::string& hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, sentence, hint);
}

void check(const ModelConfig& model, const SavingsRequest& request) {
  if (request.context < 1) refuse(fmt::format("context {} is not at least 1", request.context));
  if (request.block < 1) refuse(fmt::format("block {} is not at least 1", request.block));
  if (request.window < 0 || request.sink < 0) {
    refuse(fmt::format("window {} and sink {} must not be negative", request.window, request.sink));
  }
  if (request.sink > 0 && request.window == 0) {
    refuse(fmt::format("sink {} means nothing without a window: every token is read", request.sink));
  }
  if (model.count(AttentionKind::kCompressed) > 0) {
    refuse(fmt::format(
               "{} keeps compressed entries and a window of its own: there is no full cache to compare with",
               model.name),
           "mla-memcalc plan shows what it keeps");
  }
  if (request.window > 0 && model.indexer && model.mla) {
    refuse(fmt::format("{} picks its keys by an index (top-k {}), not by a window", model.name,
                       model.indexer->topk),
           "leave out --window and --sink: the index is what saves reads");
  }
}

/// What one layer reads and what a ring would store.
LayerSavings reading_of(const ModelConfig& model, const LayerCache& layer, const SavingsRequest& request) {
  LayerSavings out;
  const std::int64_t context = request.context;
  const std::int64_t blocks = ceil_div(context, request.block);
  const bool own = layer.window > 0;
  const std::int64_t window = own ? layer.window : request.window;
  const std::int64_t sink = own ? 0 : request.sink;
  if (layer.kind == AttentionKind::kMla && model.indexer && model.indexer->topk > 0) {
    out.what = fmt::format("top-k {}", num(std::int64_t{model.indexer->topk}));
    out.tokens_read = std::min<std::int64_t>(model.indexer->topk, context);
    out.blocks_read = std::min(out.tokens_read, blocks);  // scattered: each may lie in a block of its own
    out.ring_tokens = context;                            // any key may be picked later
    return out;
  }
  if (window == 0) {
    out.what = "all tokens";
    out.tokens_read = context;
    out.blocks_read = blocks;
    out.ring_tokens = context;
    return out;
  }
  out.what =
      own ? fmt::format("window {} of its own", num(window))
          : fmt::format("window {}{}", num(window), sink > 0 ? fmt::format(" + {} sinks", num(sink)) : "");
  const WindowSavings savings = window_savings(context, window, sink, request.block);
  out.tokens_read = savings.tokens_read;
  out.blocks_read = savings.blocks_touched;
  out.ring_tokens = std::min(savings.ring_cache_tokens, context);
  return out;
}

double share(std::int64_t tokens, const CachePart& part, std::int64_t layers) {
  return static_cast<double>(layers) * static_cast<double>(tokens) * static_cast<double>(part.entry_bytes()) /
         part.tokens_per_entry;
}

void add(Savings& savings, LayerSavings one) {
  const auto same = std::ranges::find(savings.layers, one.what, &LayerSavings::what);
  if (same == savings.layers.end()) {
    savings.layers.push_back(std::move(one));
    return;
  }
  same->layers += one.layers;
  same->read_bytes += one.read_bytes;
  same->full_read_bytes += one.full_read_bytes;
  same->full_bytes += one.full_bytes;
  same->ring_bytes += one.ring_bytes;
}

void add_lines(Savings& savings, const SavingsRequest& request) {
  const std::string source = fmt::format("cache format {}, blocks of {}", request.format.name, request.block);
  for (const LayerSavings& one : savings.layers) {
    const auto line = [&](const char* key, const char* title, double bytes, std::string formula) {
      savings.lines.push_back({.key = fmt::format("savings.{}.{}", one.what, key),
                               .title = title,
                               .value = bytes,
                               .formula = std::move(formula),
                               .source = source});
    };
    const double token = one.tokens_read > 0 ? one.full_bytes / static_cast<double>(savings.context) : 0;
    line("read", "read by a decode step", one.read_bytes,
         fmt::format("{} layers: {} of {} tokens", one.layers, num(one.tokens_read), num(savings.context)));
    line("full", "stored, full cache", one.full_bytes,
         fmt::format("{} tokens x {} B", num(savings.context), num(token)));
    line("ring", "stored, ring cache", one.ring_bytes,
         fmt::format("{} tokens (whole blocks) x {} B", num(one.ring_tokens), num(token)));
  }
}

std::int64_t engine_bytes(const ModelConfig& model, const SavingsRequest& request) {
  const PoolInputs inputs{.model = model,
                          .engine = request.engine,
                          .format = request.format,
                          .layout = {},
                          .block = request.block};
  try {
    return sequence_bytes(inputs, pool_geometry(inputs, 0), request.context);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return 0;  // blocks that this engine refuses
  }
}

}  // namespace

Savings plan_savings(const ModelConfig& model, const SavingsRequest& request) {
  check(model, request);
  // Every token's bytes, whatever the engine would drop: that is the question.
  EngineRules keeps_all = request.engine;
  keeps_all.window = WindowRule::kFullLength;
  Savings savings;
  savings.context = request.context;
  for (const LayerCache& layer : model.layers) {
    if (layer.mtp || layer.kind == AttentionKind::kNone) continue;
    LayerSavings one = reading_of(model, layer, request);
    one.layers = 1;
    if (layer.kind == AttentionKind::kRecurrent) {
      one = {.what = "recurrent state", .layers = 1};
    }
    for (const CachePart& part : cache_parts(model, layer, request.format, keeps_all)) {
      if (part.kind == PartKind::kState) {
        const auto state = static_cast<double>(part.k_bytes);
        one.read_bytes += state;
        one.full_read_bytes += state;
        one.full_bytes += state;
        one.ring_bytes += state;
        continue;
      }
      const double all = share(request.context, part, 1);
      const bool index = part.kind == PartKind::kIndex;  // every key is scored, at every step
      one.read_bytes += index ? all : share(one.tokens_read, part, 1);
      one.full_read_bytes += index ? 0 : all;
      one.full_bytes += all;
      one.ring_bytes += index ? all : share(one.ring_tokens, part, 1);
    }
    add(savings, std::move(one));
  }
  if (savings.layers.empty()) refuse(fmt::format("{} has no layer that keeps a cache", model.name));
  for (const LayerSavings& one : savings.layers) {
    savings.read_bytes += one.read_bytes;
    savings.full_read_bytes += one.full_read_bytes;
    savings.full_bytes += one.full_bytes;
    savings.ring_bytes += one.ring_bytes;
  }
  savings.engine_bytes = engine_bytes(model, request);
  add_lines(savings, request);
  return savings;
}

}  // namespace mla::capacity
