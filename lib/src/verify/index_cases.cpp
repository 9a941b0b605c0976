// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "mla/random.hpp"
#include "verify/index_check.hpp"

namespace mla::verify {
namespace {

constexpr std::int32_t kGarbage = -77777;  // no block id, and no table column's neighbour either

std::int64_t blocks_of(std::int64_t len, int block_size) {
  return (len + block_size - 1) / block_size;
}

void lay_out_table(IndexCase& c, std::uint64_t seed) {
  std::int64_t total = 0;
  for (const Request& r : c.batch) {
    total += blocks_of(r.kv_len, c.block_size);
    c.columns = std::max(c.columns, blocks_of(r.kv_len, c.block_size) + 2);
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(total));
  std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(c.first_block));
  const CounterRng rng(seed, 71);
  for (std::size_t k = ids.size(); k > 1; --k) {
    std::swap(ids[k - 1], ids[static_cast<std::size_t>(rng.between(k, 0, static_cast<std::int64_t>(k) - 1))]);
  }
  c.row_stride = c.columns * IndexCase::kColumnStride + 3;
  const auto rows = static_cast<std::int64_t>(c.batch.size());
  c.table.assign(static_cast<std::size_t>(std::max<std::int64_t>(1, rows * c.row_stride)), kGarbage);
  std::size_t next = 0;
  for (std::int64_t b = 0; b < rows; ++b) {
    const std::int64_t blocks = blocks_of(c.batch[static_cast<std::size_t>(b)].kv_len, c.block_size);
    for (std::int64_t j = 0; j < blocks; ++j) {
      c.table[static_cast<std::size_t>(b * c.row_stride + j * IndexCase::kColumnStride)] = ids[next++];
    }
  }
}

}  // namespace

std::vector<std::int32_t> IndexCase::kv_lens() const {
  std::vector<std::int32_t> lens;
  for (const Request& r : batch) lens.push_back(r.kv_len);
  return lens;
}

IndexCase make_index_case(std::uint64_t seed) {
  const CounterRng rng(seed, 70);
  std::uint64_t drawn = 0;
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(rng.between(drawn++, low, high));
  };
  constexpr int kSizes[] = {1, 2, 3, 16, 53, 64, 128};
  IndexCase c;
  c.block_size = kSizes[pick(0, 6)];
  c.window = pick(0, 2) == 0 ? c.block_size * pick(1, 3) : pick(1, 200);
  c.sink = pick(0, 2) == 0 ? 0 : pick(1, 2 * c.block_size);
  c.q_len = pick(1, 4);
  c.first_block = pick(0, 4) == 0 ? 2'000'000'000 : 0;  // slots beyond 32 bits
  const int requests = seed == 0 ? 0 : seed == 1 ? 1 : pick(1, 9);
  for (int b = 0; b < requests; ++b) {
    std::int32_t len = pick(0, 3) == 0 ? pick(0, 500) : std::max(0, c.block_size * pick(0, 5) + pick(-1, 1));
    if (seed == 1) len = c.q_len = 1;
    if (seed == 2) len = 0;
    if (len > 0) len = std::max<std::int32_t>(len, c.q_len);
    // Padding has new tokens, but no keys.
    c.batch.push_back({len == 0 ? pick(0, 2) : pick(0, len), len});
  }
  lay_out_table(c, seed);
  return c;
}

std::string to_text(const IndexCase& c) {
  std::string text = fmt::format("{} requests (q/kv", c.batch.size());
  for (const Request& r : c.batch) text += fmt::format(" {}/{}", r.q_len, r.kv_len);
  return text + fmt::format("), block size {}, window {}, sink {}, decode q_len {}, blocks from {}",
                            c.block_size, c.window, c.sink, c.q_len, c.first_block);
}

}  // namespace mla::verify
