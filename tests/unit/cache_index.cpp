// SPDX-License-Identifier: Apache-2.0
#include "mla/index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "expect_error.hpp"
#include "mla/cache.hpp"
#include "mla/random.hpp"

namespace {

using mla::CounterRng;
using mla::ErrorCode;
using mla::Mask;
using mla::Request;
using mla::SeqLens;
using mla::View;
using Ints = std::vector<std::int32_t>;

std::int64_t blocks_of(std::int64_t len, int block_size) {
  return (len + block_size - 1) / block_size;
}

/// A block table as an engine might keep it: shuffled block ids, rows and columns with strides, spare
/// columns, and garbage wherever no block is in use.
struct Table {
  static constexpr std::int64_t kColumnStride = 3;
  Ints memory;
  View<const std::int32_t, 2> view;
  Table(std::span<const std::int32_t> lens, int block_size, std::uint64_t seed,
        std::int64_t first_block = 0) {
    const CounterRng rng(seed, 99);
    std::int64_t total = 0, columns = 1;
    for (const std::int32_t len : lens) {
      total += blocks_of(len, block_size);
      columns = std::max(columns, blocks_of(len, block_size) + 2);
    }
    Ints ids(static_cast<std::size_t>(total));
    std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(first_block));
    for (std::size_t i = ids.size(); i > 1; --i) {
      std::swap(ids[i - 1],
                ids[static_cast<std::size_t>(rng.between(i, 0, static_cast<std::int64_t>(i) - 1))]);
    }
    const auto rows = static_cast<std::int64_t>(lens.size());
    const std::int64_t row_stride = columns * kColumnStride + 5;
    memory.assign(static_cast<std::size_t>(rows * row_stride + 1), -12345);
    std::size_t next = 0;
    for (std::int64_t b = 0; b < rows; ++b) {
      for (std::int64_t j = 0; j < blocks_of(lens[static_cast<std::size_t>(b)], block_size); ++j) {
        memory[static_cast<std::size_t>(b * row_stride + j * kColumnStride)] = ids[next++];
      }
    }
    view = {memory.data(), {rows, columns}, {row_stride, kColumnStride}};
  }
  [[nodiscard]] std::int64_t slot(std::int64_t b, std::int64_t p, int block_size) const {
    return std::int64_t{view(b, p / block_size)} * block_size + p % block_size;
  }
};

/// A ragged batch with empty, tiny and block-edge lengths.
struct Case {
  Ints lens;
  int block_size = 1;
  int window = 1;
  int sink = 0;
  explicit Case(std::uint64_t round) {
    const CounterRng rng(round, 1);
    std::uint64_t i = 0;
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return static_cast<std::int32_t>(rng.between(i++, low, high));
    };
    constexpr int kSizes[] = {1, 2, 3, 5, 16, 53, 64, 100, 4096};
    block_size = kSizes[pick(0, 8)];
    lens.resize(static_cast<std::size_t>(pick(0, 6)));
    for (std::int32_t& len : lens) {
      const std::int32_t edge = std::max(0, pick(1, 4) * block_size + pick(-1, 1));
      const std::int32_t choices[] = {0, pick(0, 3), pick(0, 300), std::min(edge, 9000)};
      len = choices[pick(0, 3)];
    }
    window = pick(0, 2) == 0 ? pick(1, 3) : pick(1, 400);
    sink = pick(0, 2) == 0 ? 0 : pick(0, 150);
  }
};

constexpr std::uint64_t kRounds = 600;

TEST(SparseIndex, IsWhatTheMaskSees) {
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const Case c(round);
    const Table table(c.lens, c.block_size, round);
    const auto index = mla::build_sparse_index(c.lens, c.window, c.sink, table.view, c.block_size);
    const Mask mask{.causal = true, .window = c.window, .sink = c.sink};
    Ints indptr = {0}, indices, num_kv;
    std::vector<std::int64_t> slots;
    for (std::size_t b = 0; b < c.lens.size(); ++b) {
      const std::int32_t n = c.lens[b];
      for (std::int32_t j = 0; j < n; ++j) {
        if (!mask.sees(n - 1, n, j)) continue;
        indices.push_back(j);
        slots.push_back(table.slot(static_cast<std::int64_t>(b), j, c.block_size));
      }
      num_kv.push_back(static_cast<std::int32_t>(indices.size()) - indptr.back());
      indptr.push_back(static_cast<std::int32_t>(indices.size()));
    }
    ASSERT_EQ(index.kv_indices, indices) << "round " << round;
    ASSERT_EQ(index.kv_slots, slots) << "round " << round;
    ASSERT_EQ(index.kv_indptr, indptr) << "round " << round;
    ASSERT_EQ(index.num_kv, num_kv) << "round " << round;
  }
}

TEST(PageIndex, IsTheBlocksOfWhatTheMaskSees) {
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const Case c(round);
    const Table table(c.lens, c.block_size, round);
    const auto index = mla::build_page_index(c.lens, c.window, c.sink, table.view, c.block_size);
    const Mask mask{.causal = true, .window = c.window, .sink = c.sink};
    Ints indptr = {0}, physical, logical, last;
    for (std::size_t b = 0; b < c.lens.size(); ++b) {
      const std::int32_t n = c.lens[b];
      std::set<std::int32_t> touched;
      for (std::int32_t j = 0; j < n; ++j) {
        if (mask.sees(n - 1, n, j)) touched.insert(j / c.block_size);
      }
      for (const std::int32_t j : touched) {
        logical.push_back(j);
        physical.push_back(table.view(static_cast<std::int64_t>(b), j));
      }
      indptr.push_back(static_cast<std::int32_t>(logical.size()));
      std::int32_t in_last = 0;
      for (std::int32_t j = 0; j < n; ++j) in_last += j / c.block_size == (n - 1) / c.block_size ? 1 : 0;
      last.push_back(in_last);
    }
    ASSERT_EQ(index.logical_blocks, logical) << "round " << round;
    ASSERT_EQ(index.paged_kv_indices, physical) << "round " << round;
    ASSERT_EQ(index.paged_kv_indptr, indptr) << "round " << round;
    ASSERT_EQ(index.paged_kv_last_page_len, last) << "round " << round;
  }
}

TEST(DecodeIndex, BothConventionsGiveTheSameArrays) {
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    Case c(round);
    const int q_len = 1 + static_cast<int>(round % 4);
    for (std::int32_t& len : c.lens) {
      if (len > 0) len = std::max(len, q_len);
    }
    const Table table(c.lens, c.block_size, round);
    const auto index =
        mla::build_decode_index(c.lens, SeqLens::kIncludeNewTokens, table.view, c.block_size, q_len);
    Ints excluding = c.lens;
    for (std::int32_t& len : excluding) len -= q_len;  // padding becomes -q_len
    const auto other =
        mla::build_decode_index(excluding, SeqLens::kExcludeNewTokens, table.view, c.block_size, q_len);
    ASSERT_EQ(index.slot_mapping, other.slot_mapping);
    ASSERT_EQ(index.block_tables, other.block_tables);
    ASSERT_EQ(index.seq_lens, other.seq_lens);
    ASSERT_EQ(index.seq_lens, c.lens);
    ASSERT_EQ(index.max_seq_len, c.lens.empty() ? 0 : *std::max_element(c.lens.begin(), c.lens.end()));
    ASSERT_EQ(index.max_blocks, blocks_of(index.max_seq_len, c.block_size));
    std::vector<std::int64_t> slots;
    Ints tables;
    for (std::size_t b = 0; b < c.lens.size(); ++b) {
      const auto row = static_cast<std::int64_t>(b);
      for (int i = 0; i < q_len; ++i) {
        slots.push_back(c.lens[b] == 0 ? mla::kSkipSlot
                                       : table.slot(row, c.lens[b] - q_len + i, c.block_size));
      }
      for (std::int64_t j = 0; j < index.max_blocks; ++j) {
        tables.push_back(j * c.block_size < c.lens[b] ? table.view(row, j) : 0);
      }
    }
    ASSERT_EQ(index.slot_mapping, slots) << "round " << round;
    ASSERT_EQ(index.block_tables, tables) << "round " << round;
  }
}

TEST(PrefillIndex, SlotsOfTheLastTokensAndRunningTotals) {
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const Case c(round);
    const Table table(c.lens, c.block_size, round);
    const CounterRng rng(round, 2);
    std::vector<Request> batch;
    std::vector<std::int64_t> slots;
    Ints cu_q = {0}, cu_k = {0};
    std::int32_t max_q = 0, max_k = 0;
    for (std::size_t b = 0; b < c.lens.size(); ++b) {
      const std::int32_t n = c.lens[b];
      const auto q = static_cast<std::int32_t>(n == 0 ? rng.between(b, 0, 2) : rng.between(b, 0, n));
      batch.push_back({q, n});
      for (std::int32_t i = 0; i < q; ++i) {
        slots.push_back(n == 0 ? mla::kSkipSlot
                               : table.slot(static_cast<std::int64_t>(b), n - q + i, c.block_size));
      }
      cu_q.push_back(cu_q.back() + q);
      cu_k.push_back(cu_k.back() + n);
      max_q = std::max(max_q, q);
      max_k = std::max(max_k, n);
    }
    const auto index = mla::build_prefill_index(batch, table.view, c.block_size);
    ASSERT_EQ(index.slot_mapping, slots) << "round " << round;
    ASSERT_EQ(index.cu_seqlens_q, cu_q);
    ASSERT_EQ(index.cu_seqlens_k, cu_k);
    ASSERT_EQ(index.max_seq_len_q, max_q);
    ASSERT_EQ(index.max_seq_len_k, max_k);
  }
}

// ---- the source documents' worked examples, with the right values
// ----------------------------------------------

TEST(WorkedExample, ThirtySixOfAHundredTokens) {
  const Ints lens = {100};
  const Table table(lens, 16, 1);
  const auto index = mla::build_sparse_index(lens, 32, 4, table.view, 16);
  Ints want = {0, 1, 2, 3};
  for (std::int32_t j = 68; j < 100; ++j) want.push_back(j);
  EXPECT_EQ(index.kv_indices, want);
  EXPECT_EQ(index.num_kv, Ints{36});
  EXPECT_EQ(index.kv_indptr, (Ints{0, 36}));
}

TEST(WorkedExample, PagesOfTheDocumentsBatch) {
  const Ints lens = {10000, 5000, 1000};
  const Table table(lens, 16, 2);
  const auto index = mla::build_page_index(lens, 4096, 4, table.view, 16);
  EXPECT_EQ(index.paged_kv_indptr, (Ints{0, 257, 257 + 258, 257 + 258 + 63}));
  EXPECT_EQ(index.paged_kv_indptr, (Ints{0, 257, 515, 578}));
  EXPECT_EQ(index.paged_kv_indices.size(), 578U);
  EXPECT_EQ(index.paged_kv_last_page_len, (Ints{16, 8, 8}));  // 10000 = 625 * 16: a full page, never 0
  Ints of_5000 = {0};
  for (std::int32_t j = 56; j <= 312; ++j) of_5000.push_back(j);
  EXPECT_EQ(Ints(index.logical_blocks.begin() + 257, index.logical_blocks.begin() + 515), of_5000);
  EXPECT_EQ(index.logical_blocks[0], 0);
  EXPECT_EQ(index.logical_blocks[1], 369);  // (10000 - 4096) / 16
}

TEST(WorkedExample, LastPageLen) {
  EXPECT_EQ(mla::last_page_len(10000, 16), 16);
  EXPECT_EQ(mla::last_page_len(0, 16), 0);
  for (int block_size : {1, 2, 16, 53}) {
    for (std::int64_t len = 1; len < 300; ++len) {
      const std::int32_t in_last = mla::last_page_len(len, block_size);
      ASSERT_GE(in_last, 1);
      ASSERT_LE(in_last, block_size);
      ASSERT_EQ((blocks_of(len, block_size) - 1) * block_size + in_last, len);
    }
  }
}

TEST(WorkedExample, TheNewTokensSlotUnderBothConventions) {
  const std::int32_t row[] = {7, 3};
  const View<const std::int32_t, 2> table(row, {1, 2});
  // 16 tokens are cached and one is new: it stands at position 16, the first of the second block.
  EXPECT_EQ(mla::build_decode_index(Ints{16}, SeqLens::kExcludeNewTokens, table, 16).slot_mapping.at(0),
            3 * 16);
  EXPECT_EQ(mla::build_decode_index(Ints{17}, SeqLens::kIncludeNewTokens, table, 16).slot_mapping.at(0),
            3 * 16);
  EXPECT_EQ(mla::build_decode_index(Ints{0}, SeqLens::kExcludeNewTokens, table, 16).slot_mapping.at(0),
            7 * 16);
}

// ---- edges
// -----------------------------------------------------------------------------------------------------

TEST(Index, OverlapOfWindowAndSinkCountsOnce) {
  const Ints lens = {10, 34, 36, 37};
  const Table table(lens, 4, 3);
  const auto index = mla::build_sparse_index(lens, 32, 4, table.view, 4);
  EXPECT_EQ(index.num_kv, (Ints{10, 34, 36, 36}));
  const auto pages = mla::build_page_index(lens, 32, 4, table.view, 4);
  EXPECT_EQ(pages.paged_kv_indptr, (Ints{0, 3, 3 + 9, 3 + 9 + 9, 3 + 9 + 9 + 10}));
}

TEST(Index, SlotsPast32Bits) {
  const Ints lens = {5, 200};
  constexpr int kBlock = 64;
  constexpr std::int64_t kFirst = (std::int64_t{1} << 31) - 8;  // block ids at the top of int32
  const Table table(lens, kBlock, 4, kFirst);
  const auto decode = mla::build_decode_index(lens, SeqLens::kIncludeNewTokens, table.view, kBlock);
  EXPECT_EQ(decode.slot_mapping[1], table.slot(1, 199, kBlock));
  EXPECT_GT(decode.slot_mapping[1], std::int64_t{1} << 36);
  EXPECT_EQ(mla::slot_of(table.view, kBlock, 1, 199), decode.slot_mapping[1]);
  EXPECT_EQ(mla::build_sparse_index(lens, 1, 0, table.view, kBlock).kv_slots[1], decode.slot_mapping[1]);
  EXPECT_EQ(
      mla::build_prefill_index(std::vector<Request>{{1, 5}, {1, 200}}, table.view, kBlock).slot_mapping[1],
      decode.slot_mapping[1]);
  mla::PagedLatentCache cache;
  cache.block_size = kBlock;
  cache.block_table = table.view;
  EXPECT_EQ(cache.slot(1, 199), decode.slot_mapping[1]);
}

TEST(Index, WidestWindowAndSink) {
  constexpr int kMax = std::numeric_limits<int>::max();
  const Ints lens = {9, 0};
  const Table table(lens, 4, 5);
  EXPECT_EQ(mla::build_sparse_index(lens, kMax, kMax, table.view, 4).num_kv, (Ints{9, 0}));
  EXPECT_EQ(mla::build_sparse_index(lens, 1, kMax, table.view, 4).num_kv, (Ints{9, 0}));
  EXPECT_EQ(mla::build_page_index(lens, 1, kMax, table.view, kMax).logical_blocks, Ints{0});
}

TEST(Index, EmptyBatchNeedsNoTable) {
  const View<const std::int32_t, 2> none;
  EXPECT_EQ(mla::build_prefill_index({}, none, 16).cu_seqlens_q, Ints{0});
  EXPECT_TRUE(mla::build_decode_index({}, SeqLens::kIncludeNewTokens, none, 16).block_tables.empty());
  EXPECT_EQ(mla::build_sparse_index({}, 1, 0, none, 16).kv_indptr, Ints{0});
  EXPECT_EQ(mla::build_page_index({}, 1, 0, none, 16).paged_kv_indptr, Ints{0});
}

TEST(Index, RefusesNamingTheValue) {
  const std::int32_t ids[] = {0, 1, -1, 3};
  const View<const std::int32_t, 2> table(ids, {2, 2});
  const Ints lens = {20, 10};
  const auto expect = [](auto call, std::vector<std::string_view> parts) {
    expect_error(call, ErrorCode::kInvalidArgument, parts);
  };
  const auto decode = [&](Ints l, int block, int q, SeqLens convention = SeqLens::kIncludeNewTokens) {
    return [=] { return mla::build_decode_index(l, convention, table, block, q); };
  };
  expect(decode(lens, 0, 1), {"block_size is 0", ">= 1"});
  expect(decode(lens, 16, 0), {"q_len is 0", ">= 1"});
  expect(decode({33}, 16, 1), {"2 columns", "request 0 has 33 tokens", "3 blocks of 16"});
  expect(decode({1, 1, 1}, 16, 1), {"2 rows", "3 requests"});
  expect(decode(lens, 16, 1), {"block_table[1][0] is -1", ">= 0"});
  expect(decode({3}, 16, 4), {"seq_lens[0] is 3", "4 of them are new"});
  expect(decode({-1}, 16, 1), {"seq_lens[0] is -1"});
  expect(decode({-2}, 16, 4, SeqLens::kExcludeNewTokens), {"seq_lens[0] is -2", "leaves 2 tokens"});
  expect(decode({std::numeric_limits<std::int32_t>::max()}, 16, 1, SeqLens::kExcludeNewTokens),
         {"2147483648", "int32"});
  const auto prefill = [&](std::vector<Request> batch) {
    return [=] { return mla::build_prefill_index(batch, table, 16); };
  };
  expect(prefill({{5, 4}}), {"request 0 has kv_len 4", "5 new tokens"});
  expect(prefill({{-1, 4}}), {"q_len -1"});
  expect(prefill({{0, -4}}), {"kv_len -4"});
  expect(prefill({{1, 4}, {1, 4}}), {"block_table[1][0] is -1"});
  expect(prefill({{1, 40}}), {"request 0 has 40 tokens"});
  expect([&] { return mla::build_sparse_index(lens, 0, 4, table, 16); }, {"window is 0", ">= 1"});
  expect([&] { return mla::build_sparse_index(lens, 4, -1, table, 16); }, {"sink is -1", ">= 0"});
  expect([&] { return mla::build_sparse_index(Ints{-3}, 4, 0, table, 16); }, {"seq_lens[0] is -3", ">= 0"});
  expect([&] { return mla::build_page_index(lens, 0, 4, table, 16); }, {"window is 0"});
  expect([&] { return mla::build_page_index(lens, 4, 0, table, 16); }, {"block_table[1][0] is -1"});
  expect([&] { return mla::build_page_index(lens, 4, 0, table, -16); }, {"block_size is -16"});
  EXPECT_EQ(mla::slot_of(table, 16, 0, -1), mla::kSkipSlot);
  expect([&] { return mla::slot_of(table, 16, 0, 32); }, {"2 columns"});
  expect([&] { return mla::slot_of(table, 16, 2, 0); }, {"2 rows"});
  expect([&] { return mla::slot_of(table, 16, -1, 0); }, {"request is -1"});
  expect([&] { return mla::slot_of({}, 16, 0, 0); }, {"0 rows"});
}

TEST(Index, ABlockIdIsOnlyWantedWhereItIsUsed) {
  const std::int32_t ids[] = {-1, -1, 5, -1};  // positions 32..47 alone have a block
  const View<const std::int32_t, 2> table(ids, {1, 4});
  EXPECT_EQ(mla::build_sparse_index(Ints{48}, 16, 0, table, 16).kv_slots.front(), 5 * 16);
  EXPECT_EQ(mla::build_page_index(Ints{48}, 16, 0, table, 16).paged_kv_indices, Ints{5});
  EXPECT_EQ(mla::build_prefill_index(std::vector<Request>{{2, 40}}, table, 16).slot_mapping.front(),
            5 * 16 + 6);
}

}  // namespace
