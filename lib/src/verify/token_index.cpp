// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "mla/random.hpp"
#include "verify/values.hpp"

namespace mla::verify {
namespace {

constexpr std::uint64_t kIndexStream = 100;

/// `n` positions in random order, a different one for every token.
std::vector<std::int32_t> shuffled(std::int32_t n, std::uint64_t seed, std::uint64_t token) {
  const CounterRng rng(seed, kIndexStream + token);
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int32_t i = n - 1; i > 0; --i) {
    const auto j = static_cast<std::size_t>(rng.between(static_cast<std::uint64_t>(i), 0, i));
    std::swap(order[static_cast<std::size_t>(i)], order[j]);
  }
  return order;
}

/// Entries that name no key of a sequence of n: the first is what padding usually is.
std::int32_t outside(std::size_t i, std::int32_t n) {
  const std::int32_t kinds[] = {-1, -2, n, std::numeric_limits<std::int32_t>::max(),
                                std::numeric_limits<std::int32_t>::min()};
  return kinds[i % std::size(kinds)];
}

/// Whether place i of k is left empty.
bool is_hole(IndexKind kind, std::size_t i, std::size_t k) {
  switch (kind) {
    case IndexKind::kFront:
      return i < k / 2;
    case IndexKind::kMiddle:
      return i >= k / 4 && i < k / 4 + k / 2;
    case IndexKind::kEnd:
      return i >= (k + 1) / 2;
    case IndexKind::kNone:
      return true;
    case IndexKind::kOutside:
      return i % 3 == 1;
    case IndexKind::kPlain:
    case IndexKind::kDuplicates:
      break;
  }
  return false;
}

void fill_row(IndexKind kind, std::span<const std::int32_t> order, std::int32_t n,
              std::span<std::int32_t> row) {
  std::size_t next = 0;
  const std::size_t distinct =
      kind == IndexKind::kDuplicates ? std::min(order.size(), (row.size() + 1) / 2) : order.size();
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = -1;
    if (is_hole(kind, i, row.size())) {
      if (kind == IndexKind::kOutside) row[i] = outside(i / 3, n);
    } else if (kind == IndexKind::kDuplicates && distinct > 0) {
      row[i] = order[next++ % distinct];
    } else if (next < distinct) {
      row[i] = order[next++];
    }
  }
}

}  // namespace

std::vector<std::int32_t> make_token_index(const Case& c) {
  std::vector<std::int32_t> index;
  if (c.shape.topk == 0) return index;
  const auto topk = static_cast<std::size_t>(c.shape.topk);
  index.resize(static_cast<std::size_t>(c.shape.num_tokens()) * topk);
  std::size_t token = 0;
  for (const Request& r : c.shape.batch) {
    for (std::int32_t i = 0; i < r.q_len; ++i, ++token) {
      const std::vector<std::int32_t> order = shuffled(r.kv_len, c.seed, token);
      fill_row(c.index, order, r.kv_len, std::span(index).subspan(token * topk, topk));
    }
  }
  return index;
}

}  // namespace mla::verify
