// SPDX-License-Identifier: Apache-2.0
#include "latent/cascade.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "latent/heuristics.hpp"

namespace mla::kernels::latent {
namespace {

constexpr std::int64_t kBlock = 64;  // keys, of the large-work kernel
constexpr std::int64_t kShortestStretch =
    4;  // blocks: shorter ones are written and added up for longer than computed

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t queries_of(const AttentionShape& shape, const SharedPrefix& s) {
  std::int64_t queries = 0;
  for (std::int32_t i = 0; i < s.count; ++i) {
    queries += shape.batch[static_cast<std::size_t>(s.first) + static_cast<std::size_t>(i)].q_len;
  }
  return queries;
}

/// Pairs of row tiles and blocks that a group's prefix is.
struct Size {
  std::int64_t tiles = 0, blocks = 0;
};

/// Stretches of a prefix, if every cluster is to have about `each` blocks.
std::int64_t stretches_of(const Size& size, std::int64_t each) {
  return std::clamp<std::int64_t>((size.blocks + each / 2) / each, 1, kMostStretches);
}

}  // namespace

Support supports_cascade(const AttentionShape& shape, std::int64_t most_rows) {
  if (shape.shared.empty()) return Support::yes();
  if (shape.mask.window) {
    return Support::no(
        fmt::format("a shared prefix of {} tokens is read once under a mask without a window, not {}",
                    shape.shared.front().tokens, *shape.mask.window));
  }
  if (std::ssize(shape.shared) > kMostGroups) {
    return Support::no(
        fmt::format("at most {} prefixes are shared in one batch, not {}", kMostGroups, shape.shared.size()));
  }
  for (const SharedPrefix& s : shape.shared) {
    if (const std::int64_t rows = queries_of(shape, s) * shape.dims.num_heads; rows > most_rows) {
      return Support::no(
          fmt::format("requests that share a prefix have at most {} rows (queries x heads) together, "
                      "not {}",
                      most_rows, rows));
    }
  }
  return Support::yes();
}

bool cascade_pays(const AttentionShape& shape, std::int64_t num_sms) {
  // Nanoseconds of 132 multiprocessors for 1024 keys, measured with pages in the L2: of 16, 32, 64 and 128 rows.
  constexpr std::int64_t k16 = 220, k32 = 290, k64 = 290, k128 = 460;
  constexpr std::int64_t kAround = 22'000;  // what two launches more, and the start of a third, take
  const auto whole = [](std::int64_t rows) {
    return rows <= 16 ? k16 : rows <= 32 ? k32 : rows <= 64 ? k64 : ceil_div(rows, 128) * k128;
  };
  std::int64_t saved = 0;
  for (const SharedPrefix& s : shape.shared) {
    std::int64_t each = 0;
    for (std::int32_t i = 0; i < s.count; ++i) {
      const Request& r = shape.batch[static_cast<std::size_t>(s.first) + static_cast<std::size_t>(i)];
      each += whole(std::int64_t{r.q_len} * shape.dims.num_heads);
    }
    saved += (each - whole(queries_of(shape, s) * shape.dims.num_heads)) * s.tokens / 1024;
  }
  return saved * 132 / num_sms > kAround;
}

Cascade make_cascade(const AttentionShape& shape, std::int64_t num_sms, bool whole) {
  Cascade c;
  c.own = shape;
  c.own.space = QuerySpace::kLatent;
  c.own.out_dtype = DType::kF32;
  c.own.shared.clear();
  c.prefix = c.own;
  c.prefix.batch.clear();
  c.prefix.mask = Mask{.causal = false};

  std::vector<Size> sizes;
  std::int64_t most_rows = 0;
  for (const SharedPrefix& s : shape.shared) {
    most_rows = std::max(most_rows, queries_of(shape, s) * shape.dims.num_heads);
  }
  const std::int64_t clusters_of = most_rows > 64 ? 2 : 1;  // CTAs of 64 rows each
  std::int64_t work = 0;
  for (const SharedPrefix& s : shape.shared) {
    sizes.push_back({ceil_div(queries_of(shape, s) * shape.dims.num_heads, 64 * clusters_of),
                     ceil_div(s.tokens, kBlock)});
    work += sizes.back().tiles * sizes.back().blocks;
  }
  const std::int64_t each =
      std::max(kShortestStretch, ceil_div(work, resident_clusters(clusters_of, num_sms)));
  // A stretch begins a block table of its own, so it is made of whole pages.
  const std::int64_t page = shape.block_size * ceil_div(kBlock, shape.block_size);
  for (std::size_t i = 0; i < shape.shared.size(); ++i) {
    const SharedPrefix& s = shape.shared[i];
    const std::int64_t wanted = whole ? 1 : stretches_of(sizes[i], each);
    const std::int64_t stretch = ceil_div(ceil_div(s.tokens, wanted), page) * page;
    CascadeGroup g;
    g.first = s.first;
    g.count = s.count;
    g.tokens = s.tokens;
    g.stretch = static_cast<std::int32_t>(std::min<std::int64_t>(stretch, s.tokens));
    g.stretches = static_cast<std::int32_t>(ceil_div(s.tokens, g.stretch));
    g.slice = static_cast<std::int32_t>(c.prefix.batch.size());
    g.row = c.own_row;
    g.rows = static_cast<std::int32_t>(queries_of(shape, s));
    for (std::int32_t j = 0; j < g.stretches; ++j) {
      c.prefix.batch.push_back({.q_len = g.rows, .kv_len = std::min(g.stretch, g.tokens - j * g.stretch)});
    }
    c.own_row += g.stretches * g.rows;
    c.stretch_columns = std::max(c.stretch_columns, g.stretch / shape.block_size);
    c.groups.push_back(g);
    for (std::int32_t b = s.first; b < s.first + s.count; ++b) {
      c.own.batch[static_cast<std::size_t>(b)].kv_len -= s.tokens;
    }
  }
  c.rows = c.own_row + shape.num_tokens();
  for (const Request& r : shape.batch) {
    c.most_queries = std::max(c.most_queries, r.q_len);
    c.own_columns = std::max(c.own_columns, static_cast<std::int32_t>(ceil_div(r.kv_len, shape.block_size)));
  }
  return c;
}

}  // namespace mla::kernels::latent
