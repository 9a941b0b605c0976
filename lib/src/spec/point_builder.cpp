// SPDX-License-Identifier: Apache-2.0
#include "spec/point_builder.hpp"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "core/shared_prefix.hpp"
#include "mla/model.hpp"
#include "spec/read.hpp"
#include "spec/values.hpp"

namespace mla::spec {
namespace {

std::int32_t small(std::int64_t value, std::string_view what) {
  if (value > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} {} is more than 2^31 - 1", what, value));
  }
  return static_cast<std::int32_t>(value);
}

std::int32_t parse_small(std::string_view text, std::string_view what) {
  return small(parse_count(text, what), what);
}

std::string at(const Tokens& tokens, std::string_view key) {
  const auto found = tokens.find(key);
  return found == tokens.end() ? std::string() : found->second;
}

MlaDims parse_dims(std::string_view text) {
  MlaDims dims;
  std::set<char> seen;
  for (const std::string& word : text::split(text, '/')) {
    const std::int32_t value = word.size() < 2 ? -1 : parse_small(word.substr(1), fmt::format("'{}'", word));
    int* const field = word.empty()     ? nullptr
                       : word[0] == 'h' ? &dims.num_heads
                       : word[0] == 'l' ? &dims.kv_lora_rank
                       : word[0] == 'r' ? &dims.qk_rope_head_dim
                       : word[0] == 'p' ? &dims.qk_nope_head_dim
                       : word[0] == 'v' ? &dims.v_head_dim
                                        : nullptr;
    if (field == nullptr || value < 0 || !seen.insert(word[0]).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("widths {} have the part {}", text::quoted(text), text::quoted(word)),
                  "write them like h16/l512/r64/p128/v128: heads, latent, rope, nope, value");
    }
    *field = value;
  }
  return dims;
}

void apply_tp(std::int32_t tp, MlaDims& dims) {
  if (tp < 1 || dims.num_heads % tp != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("tp {} does not divide {} heads evenly", tp, dims.num_heads));
  }
  dims.num_heads /= tp;
}

template <class Parse>
auto read(const SweepSpec& spec, const Tokens& tokens, std::string_view key, Parse parse) {
  return with_context(spec, key, [&] { return parse(at(tokens, key)); });
}

}  // namespace

SweepPoint PointBuilder::build(const Tokens& tokens) {
  SweepPoint point;
  point.backend = at(tokens, "backend");
  point.options.num_splits = parse_small(at(tokens, "splits"), "splits");
  point.options.prefix_reads = read(spec_, tokens, "prefix_reads", [](const std::string& text) {
    return pick<PrefixReads>(
        text, {{"auto", PrefixReads::kAuto}, {"once", PrefixReads::kOnce}, {"each", PrefixReads::kEach}});
  });
  point.options.batch_invariant = read(spec_, tokens, "invariant", [](const std::string& text) {
    return pick<bool>(text, {{"yes", true}, {"no", false}});
  });
  point.options.threads = parse_small(at(tokens, "threads"), "threads");
  point.caches = read(spec_, tokens, "caches", [](const std::string& text) {
    return pick<Caches>(text, {{"cold", Caches::kCold}, {"warm", Caches::kWarm}});
  });
  point.step = read(spec_, tokens, "work", [](const std::string& text) {
    return pick<bool>(text, {{"attention", false}, {"step", true}});
  });
  if (const std::string text = at(tokens, "shape"); !text.empty()) {
    point.model = "custom";
    point.shape = with_context(spec_, "shape", [&] { return parse_shape(text); });
  } else {
    build_shape(tokens, point);
  }
  // Without a shared prefix there is nothing to read once or for each.
  if (point.shape.shared.empty()) point.options.prefix_reads = PrefixReads::kAuto;
  if (point.step) point.shape.space = QuerySpace::kHead;  // the projections are part of it
  mla::validate(point.shape.dims);
  mla::validate(point.shape);
  if (point.step) mla::validate_new_rows(point.shape);
  return point;
}

std::int32_t PointBuilder::count(const Tokens& tokens, std::string_view key) const {
  return read(spec_, tokens, key, [&](const std::string& text) { return parse_small(text, key); });
}

const MlaDims& PointBuilder::dims_of(const std::string& model) {
  const auto found = models_.find(model);
  if (found != models_.end()) return found->second;
  const ModelConfig config = with_context(spec_, "model", [&] { return load_model(model); });
  if (!config.mla) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("model {}: {}", text::quoted(model), is_mla(config).reason),
                "'mla-bench list models' shows which models use MLA");
  }
  return models_.emplace(model, *config.mla).first->second;
}

void PointBuilder::build_shape(const Tokens& tokens, SweepPoint& point) {
  AttentionShape& shape = point.shape;
  if (const std::string dims = at(tokens, "dims"); !dims.empty()) {
    point.model = "custom";
    shape.dims = with_context(spec_, "dims", [&] { return parse_dims(dims); });
  } else {
    point.model = at(tokens, "model");
    shape.dims = dims_of(point.model);
  }
  if (tokens.contains("heads")) shape.dims.num_heads = count(tokens, "heads");
  if (tokens.contains("tp")) {
    with_context(spec_, "tp", [&] { apply_tp(parse_small(at(tokens, "tp"), "tp"), shape.dims); });
  }
  shape.phase = read(spec_, tokens, "phase", [](const std::string& text) {
    return pick<Phase>(text, {{"decode", Phase::kDecode}, {"prefill", Phase::kPrefill}});
  });
  shape.space = read(spec_, tokens, "space", [](const std::string& text) {
    return pick<QuerySpace>(text, {{"head", QuerySpace::kHead}, {"latent", QuerySpace::kLatent}});
  });
  shape.batch = batch_of(tokens);
  if (const std::int32_t shared = count(tokens, "shared_prefix"); shared > 0) {
    shape.shared = {{.tokens = shared, .count = static_cast<std::int32_t>(shape.batch.size())}};
  }
  shape.topk = count(tokens, "topk");
  if (const std::string window = at(tokens, "window"); window != "full" && shape.topk == 0) {
    shape.mask.window = count(tokens, "window");
    shape.mask.sink = count(tokens, "sink");  // without a window a sink means nothing: every key is seen
  }
  shape.block_size = count(tokens, "block_size");
  shape.q_dtype = read(spec_, tokens, "dtype", [](const std::string& text) { return parse_dtype(text); });
  shape.out_dtype = read(spec_, tokens, "out_dtype", [&](const std::string& text) {
    return text == "same" ? shape.q_dtype : parse_dtype(text);
  });
  shape.cache =
      read(spec_, tokens, "cache", [](const std::string& text) { return parse_cache_format(text); });
}

std::vector<Request> PointBuilder::batch_of(const Tokens& tokens) const {
  if (tokens.contains("batch")) {
    return read(spec_, tokens, "batch", [&](const std::string& text) { return parse_batch(text, seed_); });
  }
  const std::int32_t requests = count(tokens, "requests");
  if (requests > 65536) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} requests in one batch", requests),
                "at most 65536");
  }
  return std::vector<Request>(static_cast<std::size_t>(requests),
                              {.q_len = count(tokens, "q_len"), .kv_len = count(tokens, "kv")});
}

}  // namespace mla::spec
