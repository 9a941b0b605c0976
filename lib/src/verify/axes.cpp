// SPDX-License-Identifier: Apache-2.0
#include "verify/axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mla/error.hpp"

namespace mla::verify {
namespace {

/// Levels that are a number each.
template <class Set>
Axis number_axis(std::string name, std::initializer_list<std::int32_t> values, Set set) {
  Axis axis{std::move(name), {}};
  for (const std::int32_t v : values) {
    axis.levels.push_back({fmt::format("{}", v), [set, v](Draft& d) { set(d, v); }});
  }
  return axis;
}

Axis dims_axis(bool wide) {
  struct Dims {
    const char* name;
    int l, r, p, v;
  };
  std::vector<Dims> all{{"DeepSeek-V3", 512, 64, 128, 128},   {"MiniCPM3", 256, 32, 64, 64},
                        {"GLM-4.7-Flash", 512, 64, 192, 256}, {"Mistral-Small-4", 256, 64, 64, 128},
                        {"all different", 40, 8, 24, 56},     {"no rope", 128, 0, 64, 96}};
  if (wide) all.insert(all.end(), {{"rank 128", 128, 64, 128, 64}, {"wide value", 64, 32, 192, 256}});
  Axis axis{"dims", {}};
  for (const Dims& x : all) {
    axis.levels.push_back({x.name, [x](Draft& d) {
                             d.c.shape.dims = {d.c.shape.dims.num_heads, x.l, x.r, x.p, x.v};
                           }});
  }
  return axis;
}

Axis heads_axis(bool wide) {
  const auto set = [](Draft& d, std::int32_t n) { d.c.shape.dims.num_heads = n; };
  return wide ? number_axis("heads", {1, 2, 3, 5, 8, 16, 20, 40, 48, 63, 64, 65, 96, 128}, set)
              : number_axis("heads", {1, 2, 3, 5, 8, 16, 20, 40, 64, 128}, set);
}

Axis space_axis() {
  return {"space",
          {{"latent", [](Draft& d) { d.c.shape.space = QuerySpace::kLatent; }},
           {"head", [](Draft& d) { d.c.shape.space = QuerySpace::kHead; }}}};
}

/// Lengths where things change: 0, 1, 2, page edges, the backends' own tile and split sizes.
Axis length_axis(bool wide, std::span<const Backend* const> backends) {
  Axis axis{"length", {}};
  const auto add = [&axis](std::int32_t pages, std::int32_t tokens) {
    axis.levels.push_back({fmt::format("{}p{:+d}", pages, tokens), [=](Draft& d) {
                             d.length = {pages, tokens};
                           }});
  };
  for (const std::int32_t n : {0, 1, 2}) add(0, n);
  for (const std::int32_t pages :
       wide ? std::vector<std::int32_t>{1, 2, 3} : std::vector<std::int32_t>{1, 2}) {
    for (const std::int32_t delta : {-1, 0, 1}) add(pages, delta);
  }
  std::set<std::int32_t> fixed{300};
  for (const Backend* backend : backends) {
    for (const std::int32_t edge : backend->info().edges) {
      for (const std::int32_t delta : {-1, 0, 1}) fixed.insert(edge + delta);
      if (wide) fixed.insert({2 * edge - 1, 2 * edge, 2 * edge + 1});
    }
  }
  if (wide) fixed.insert({1000, 4095, 4096, 4097, 8191, 8192, 8193});
  for (const std::int32_t n : fixed) {
    if (n > 2) add(0, n);
  }
  return axis;
}

Axis query_axis(bool wide) {
  const auto set = [](Draft& d, std::int32_t n) { d.q_len = n; };
  Axis axis =
      wide ? number_axis("q_len", {1, 2, 3, 4, 5, 6, 7, 8}, set) : number_axis("q_len", {1, 2, 3, 4, 7}, set);
  axis.levels.push_back({"ragged", [](Draft& d) { d.query = QueryRule::kRagged; }});
  axis.levels.push_back({"prefill", [](Draft& d) { d.query = QueryRule::kPrefill; }});
  return axis;
}

void add_window(Axis& axis, std::int32_t pages, std::int32_t tokens, std::int32_t sink) {
  axis.levels.push_back({fmt::format("window {}p{:+d} sink {}", pages, tokens, sink), [=](Draft& d) {
                           d.window_pages = pages;
                           d.window_tokens = tokens;
                           d.c.shape.mask.sink = sink;
                         }});
}

void add_index(Axis& axis, std::int32_t topk, IndexKind kind) {
  axis.levels.push_back({fmt::format("topk {} {}", topk, name_of(kind)), [=](Draft& d) {
                           d.c.shape.topk = topk;
                           d.c.index = kind;
                         }});
}

Axis mask_axis(bool wide) {
  Axis axis{"mask", {{"causal", [](Draft&) {}}, {"full", [](Draft& d) { d.c.shape.mask.causal = false; }}}};
  add_window(axis, 0, 1, 0);
  add_window(axis, 0, 5, 0);
  add_window(axis, 1, 0, 4);
  add_window(axis, 0, 5, 4);
  add_window(axis, 0, 10000, 0);
  if (wide) {
    add_window(axis, 1, 1, 0);
    add_window(axis, 0, 1, 1);
    add_window(axis, 0, 10000, 4);
  }
  for (const IndexKind kind : {IndexKind::kPlain, IndexKind::kFront, IndexKind::kMiddle, IndexKind::kEnd,
                               IndexKind::kNone, IndexKind::kOutside, IndexKind::kDuplicates}) {
    add_index(axis, 12, kind);
  }
  add_index(axis, 1, IndexKind::kPlain);
  add_index(axis, 192, IndexKind::kPlain);
  if (wide) {
    for (const std::int32_t topk : {3, 63, 64, 65, 512}) add_index(axis, topk, IndexKind::kPlain);
  }
  return axis;
}

Axis block_axis(bool wide) {
  const auto set = [](Draft& d, std::int32_t n) { d.c.shape.block_size = n; };
  return wide ? number_axis("block", {1, 3, 16, 32, 48, 64, 128, 480}, set)
              : number_axis("block", {1, 16, 32, 48, 64, 128}, set);
}

/// Types of query, output and cache that go together in practice.
Axis type_axis() {
  struct Types {
    DType q, out;
    CacheFormat cache;
  };
  constexpr Types kAll[] = {{DType::kF64, DType::kF64, CacheFormat::kF64},
                            {DType::kF32, DType::kF32, CacheFormat::kF32},
                            {DType::kBF16, DType::kBF16, CacheFormat::kBF16},
                            {DType::kF16, DType::kF16, CacheFormat::kF16},
                            {DType::kBF16, DType::kF32, CacheFormat::kBF16},
                            {DType::kF32, DType::kBF16, CacheFormat::kF32},
                            {DType::kBF16, DType::kBF16, CacheFormat::kBF16Split},
                            {DType::kF16, DType::kF16, CacheFormat::kF16Split},
                            {DType::kBF16, DType::kBF16, CacheFormat::kFp8},
                            {DType::kBF16, DType::kBF16, CacheFormat::kFp8DsMla},
                            {DType::kF64, DType::kF64, CacheFormat::kFp8DsMla}};
  Axis axis{"types", {}};
  for (const Types& t : kAll) {
    axis.levels.push_back(
        {fmt::format("{}/{}/{}", name_of(t.q), name_of(t.out), name_of(t.cache)), [t](Draft& d) {
           d.c.shape.q_dtype = t.q;
           d.c.shape.out_dtype = t.out;
           d.c.shape.cache = t.cache;
         }});
  }
  return axis;
}

Axis value_axis() {
  Axis axis{"values", {}};
  for (const double std : {0.01, 1.0, 8.0, 30.0}) {
    axis.levels.push_back({fmt::format("normal {}", std), [std](Draft& d) { d.c.score_std = std; }});
  }
  for (const ValueKind kind :
       {ValueKind::kDominant, ValueKind::kSinks, ValueKind::kConstant, ValueKind::kAlternating,
        ValueKind::kHeavyTail, ValueKind::kTiny, ValueKind::kDenormal, ValueKind::kExtreme,
        ValueKind::kZeroQuery, ValueKind::kNan, ValueKind::kInfinity}) {
    axis.levels.push_back({std::string(name_of(kind)), [kind](Draft& d) { d.c.values = kind; }});
  }
  return axis;
}

Axis split_axis(bool wide) {
  const auto set = [](Draft& d, std::int32_t n) { d.c.num_splits = n; };
  return wide ? number_axis("splits", {0, 1, 2, 3, 5, 8, 16, 31, 32}, set)
              : number_axis("splits", {0, 1, 2, 3, 8, 32}, set);
}

Axis poison_axis() {
  Axis axis{"poison", {}};
  for (const Poison p : {Poison::kNan, Poison::kInfinity, Poison::kZero, Poison::kMaximum}) {
    axis.levels.push_back({std::string(name_of(p)), [p](Draft& d) { d.c.poison = p; }});
  }
  return axis;
}

Axis memory_axis() {
  return {"memory",
          {{"permuted", [](Draft&) {}},
           {"in order",
            [](Draft& d) {
              d.c.permuted = false;
              d.c.spare_columns = 0;
            }},
           {"strided", [](Draft& d) { d.c.strided = true; }},
           {"wide table, no lse", [](Draft& d) {
              d.c.spare_columns = 9;
              d.c.lse = false;
            }}}};
}

std::int32_t query_length(const Draft& draft, std::int32_t i, std::int32_t kv_len) {
  switch (draft.query) {
    case QueryRule::kFixed:
      return kv_len == 0 ? draft.q_len : std::min(draft.q_len, kv_len);
    case QueryRule::kRagged:
      return std::min(1 + (i * 2 + 1) % 5, std::max(kv_len, 1));
    case QueryRule::kPrefill:
      return kv_len;
  }
  return 1;
}

}  // namespace

std::vector<Axis> make_axes(bool wide, std::span<const Backend* const> backends) {
  return {dims_axis(wide),
          heads_axis(wide),
          space_axis(),
          length_axis(wide, backends),
          number_axis("requests", {1, 2, 5}, [](Draft& d, std::int32_t n) { d.requests = n; }),
          query_axis(wide),
          mask_axis(wide),
          block_axis(wide),
          type_axis(),
          value_axis(),
          split_axis(wide),
          poison_axis(),
          memory_axis()};
}

std::optional<Case> finish(const Draft& draft, std::string* why) {
  Case c = draft.c;
  const std::int32_t page = c.shape.block_size;
  const std::int32_t length = std::max(0, draft.length.pages * page + draft.length.tokens);
  // The other requests of a batch differ from the first: tiny, empty, longer, half as long.
  const std::int32_t lengths[] = {length, 1, 0, length + page, length / 2 + 1};
  c.shape.batch.clear();
  for (std::int32_t i = 0; i < draft.requests; ++i) {
    const std::int32_t kv_len = lengths[i % 5];
    c.shape.batch.push_back({query_length(draft, i, kv_len), kv_len});
  }
  c.shape.phase = draft.query == QueryRule::kPrefill ? Phase::kPrefill : Phase::kDecode;
  const std::int32_t window = draft.window_pages * page + draft.window_tokens;
  if (window > 0) c.shape.mask.window = window;
  try {
    validate(c);
    (void)cache_layout(c.shape.cache, c.shape.dims);
  } catch (const Error& e) {
    if (why != nullptr) *why = e.what();
    return std::nullopt;
  }
  if (c.shape.num_tokens() == 0) {
    if (why != nullptr) *why = "no request would have a new token";
    return std::nullopt;
  }
  return c;
}

}  // namespace mla::verify
