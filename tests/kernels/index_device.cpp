// SPDX-License-Identifier: Apache-2.0
// The device indexers against the host ones, bit for bit; and what they share with kernels, on any machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "device_array.hpp"
#include "index/table.hpp"
#include "mla/device_ops.hpp"
#include "mla/error.hpp"
#include "mla/index.hpp"
#include "mla/random.hpp"

namespace {

using namespace mla;
using mla::testing::DeviceArray;
using Ints = std::vector<std::int32_t>;
using Slots = std::vector<std::int64_t>;

constexpr std::int32_t kGarbage = -77777;

std::int64_t blocks_of(std::int64_t len, int block_size) {
  return (len + block_size - 1) / block_size;
}

/// A ragged batch with empty, tiny and block-edge lengths, and a strided table of shuffled ids, garbage where
/// unused.
struct Batch {
  Ints lens;
  int block_size = 1;
  Ints memory;
  std::int64_t columns = 1, row_stride = 1;
  static constexpr std::int64_t kColumnStride = 2;

  explicit Batch(std::uint64_t seed, int most_requests = 9, std::int64_t first_block = 0) {
    const CounterRng rng(seed, 1);
    std::uint64_t i = 0;
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return static_cast<std::int32_t>(rng.between(i++, low, high));
    };
    constexpr int kSizes[] = {1, 2, 3, 16, 53, 64, 128};
    block_size = kSizes[pick(0, 6)];
    lens.resize(static_cast<std::size_t>(pick(0, most_requests)));
    for (std::int32_t& len : lens) {
      const std::int32_t edge = block_size * pick(0, 5) + pick(-1, 1);
      len = std::max(0, pick(0, 3) == 0 ? pick(0, 700) : edge);
    }
    lay_out(seed, first_block);
  }
  Batch(Ints lengths, int size) : lens(std::move(lengths)), block_size(size) { lay_out(7, 0); }

  [[nodiscard]] View<const std::int32_t, 2> view(const std::int32_t* data) const {
    return {data, {static_cast<std::int64_t>(lens.size()), columns}, {row_stride, kColumnStride}};
  }
  [[nodiscard]] std::int64_t requests() const { return static_cast<std::int64_t>(lens.size()); }

 private:
  void lay_out(std::uint64_t seed, std::int64_t first_block) {
    std::int64_t total = 0;
    for (const std::int32_t len : lens) {
      total += blocks_of(len, block_size);
      columns = std::max(columns, blocks_of(len, block_size) + 2);
    }
    Ints ids(static_cast<std::size_t>(total));
    std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(first_block));
    const CounterRng rng(seed, 2);
    for (std::size_t k = ids.size(); k > 1; --k)
      std::swap(ids[k - 1],
                ids[static_cast<std::size_t>(rng.between(k, 0, static_cast<std::int64_t>(k) - 1))]);
    row_stride = columns * kColumnStride + 3;
    memory.assign(static_cast<std::size_t>(std::max<std::int64_t>(1, requests() * row_stride)), kGarbage);
    std::size_t next = 0;
    for (std::int64_t b = 0; b < requests(); ++b)
      for (std::int64_t j = 0; j < blocks_of(lens[static_cast<std::size_t>(b)], block_size); ++j)
        memory[static_cast<std::size_t>(b * row_stride + j * kColumnStride)] = ids[next++];
  }
};

template <class T>
View<T, 1> view_of(const DeviceArray<T>& array) {
  return {array.data(), {static_cast<std::int64_t>(array.size())}};
}
View<const std::int32_t, 1> input_of(const DeviceArray<std::int32_t>& array, std::int64_t count) {
  return {array.data(), {count}};
}
template <class T>
std::vector<T> first(std::vector<T> values, std::size_t count) {
  values.resize(count);
  return values;
}

TEST(IndexShared, KeptKeysAreThoseOfTheMask) {
  for (const int window : {1, 2, 5, 64, 1000}) {
    for (const int sink : {0, 1, 4, 70}) {
      const Mask mask{.causal = true, .window = window, .sink = sink};
      for (std::int32_t len = 0; len < 150; ++len) {
        const auto kept = kernels::index::kept_keys(len, window, sink);
        Ints want;
        for (std::int32_t j = 0; j < len; ++j)
          if (mask.sees(len - 1, len, j)) want.push_back(j);
        Ints got;
        for (std::int32_t i = 0; i < kept.keys(); ++i) got.push_back(kept.key(i));
        ASSERT_EQ(got, want) << "len " << len << " window " << window << " sink " << sink;
        for (const int size : {1, 3, 16}) {
          Ints blocks;
          for (const std::int32_t j : want)
            if (blocks.empty() || blocks.back() != j / size) blocks.push_back(j / size);
          Ints touched;
          const kernels::index::KeptBlocks pages(kept, size);
          for (std::int32_t i = 0; i < pages.blocks(); ++i) touched.push_back(pages.block(i));
          ASSERT_EQ(touched, blocks) << "len " << len << " window " << window << " sink " << sink
                                     << " block size " << size;
        }
      }
    }
  }
}

TEST(IndexShared, TableAnswersMinusOneOutsideItself) {
  const Ints data = {4, -1, 9};
  const kernels::index::BlockTable table{data.data(), 3, 1, 1, 3, 16, kernels::FastDivide(16)};
  EXPECT_EQ(table.slot(0, 5), 4 * 16 + 5);
  EXPECT_EQ(table.slot(0, 16), kSkipSlot);  // a block that is not there
  EXPECT_EQ(table.slot(0, 47), 9 * 16 + 15);
  EXPECT_EQ(table.slot(0, 48), kSkipSlot);  // past the last column
  EXPECT_EQ(table.slot(0, -1), kSkipSlot);
}

TEST(IndexShared, CapacityHoldsEveryLength) {
  for (const int size : {1, 3, 16, 64}) {
    for (const int window : {1, 2, 17, 64, 100}) {
      for (const int sink : {0, 1, 4, 65}) {
        const std::int64_t columns = 10;
        for (std::int32_t len = 0; len <= columns * size; ++len) {
          const auto kept = kernels::index::kept_keys(len, window, sink);
          ASSERT_LE(kept.keys(), device_ops::sparse_index_capacity(1, window, sink, columns, size));
          ASSERT_LE(kernels::index::KeptBlocks(kept, size).blocks(),
                    device_ops::page_index_capacity(1, window, sink, columns, size));
        }
      }
    }
  }
}

TEST(IndexShared, WrongArgumentsAreNamedBeforeAnyDeviceIsLookedFor) {
  std::int32_t lens[4] = {}, table[4] = {}, out[8] = {};
  const View<const std::int32_t, 1> two(lens, {2});
  const View<const std::int32_t, 2> rows(table, {2, 2});
  const auto sentence = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.code() == ErrorCode::kInvalidArgument ? e.what() : std::string("other: ") + e.what();
    }
    return "nothing thrown";
  };
  device_ops::DeviceSparseIndex sparse;
  sparse.kv_indptr = View<std::int32_t, 1>(out, {3});
  sparse.kv_indices = View<std::int32_t, 1>(out, {5});
  EXPECT_EQ(sentence([&] { device_ops::build_sparse_index(two, 2, 1, rows, 4, sparse); }),
            "kv_indices has 5 entries, but must have at least 6");
  EXPECT_EQ(sentence([&] { device_ops::build_sparse_index(two, 0, 1, rows, 4, sparse); }),
            "window is 0, but must be >= 1 (it counts the newest token)");
  EXPECT_EQ(sentence([&] { device_ops::build_sparse_index(two, 2, 1, rows, 0, sparse); }),
            "block_size is 0, but must be >= 1");
  const View<const std::int32_t, 2> short_table(table, {1, 2});
  EXPECT_EQ(sentence([&] { device_ops::build_sparse_index(two, 2, 1, short_table, 4, sparse); }),
            "block_table has 1 rows, but there are 2 requests");
  device_ops::DeviceDecodeIndex decode;
  EXPECT_EQ(
      sentence([&] { device_ops::build_decode_index(two, SeqLens::kIncludeNewTokens, rows, 4, 1, decode); }),
      "slot_mapping is missing");
}

TEST(IndexDevice, PrefillEqualsHost) {
  MLA_NEEDS_GPU();
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Batch batch(seed);
    const CounterRng rng(seed, 3);
    std::vector<Request> requests;
    Ints q_lens;
    for (std::size_t b = 0; b < batch.lens.size(); ++b) {
      const auto q = static_cast<std::int32_t>(rng.between(b, 0, batch.lens[b]));
      q_lens.push_back(batch.lens[b] == 0 ? 2 : q);  // padding has new tokens, but no keys
      requests.push_back({q_lens.back(), batch.lens[b]});
    }
    const PrefillIndex want =
        build_prefill_index(requests, batch.view(batch.memory.data()), batch.block_size);
    const std::size_t capacity = want.slot_mapping.size() + 5;
    DeviceArray<std::int32_t> table(batch.memory), lens(batch.lens), q(q_lens);
    DeviceArray<std::int64_t> slots(Slots(capacity, kGarbage));
    DeviceArray<std::int32_t> cu_q(requests.size() + 1), cu_k(requests.size() + 1), longest(2);
    device_ops::build_prefill_index(input_of(q, batch.requests()), input_of(lens, batch.requests()),
                                    batch.view(table.data()), batch.block_size,
                                    {view_of(slots), view_of(cu_q), view_of(cu_k), view_of(longest)});
    Slots want_slots = want.slot_mapping;
    want_slots.resize(capacity, kSkipSlot);
    ASSERT_EQ(slots.read(), want_slots) << "seed " << seed;
    ASSERT_EQ(cu_q.read(), want.cu_seqlens_q);
    ASSERT_EQ(cu_k.read(), want.cu_seqlens_k);
    ASSERT_EQ(longest.read(), (Ints{want.max_seq_len_q, want.max_seq_len_k}));
  }
}

TEST(IndexDevice, DecodeEqualsHost) {
  MLA_NEEDS_GPU();
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Batch batch(seed);
    const int q_len = static_cast<int>(seed % 3) + 1;
    for (std::int32_t& len : batch.lens)
      if (len > 0 && len < q_len) len = q_len;
    batch = Batch(batch.lens, batch.block_size);
    const bool excluded = seed % 2 == 1;
    Ints given = batch.lens;
    if (excluded)
      for (std::int32_t& len : given) len -= q_len;
    const SeqLens convention = excluded ? SeqLens::kExcludeNewTokens : SeqLens::kIncludeNewTokens;
    const DecodeIndex want =
        build_decode_index(given, convention, batch.view(batch.memory.data()), batch.block_size, q_len);
    DeviceArray<std::int32_t> table(batch.memory), lens(given);
    DeviceArray<std::int64_t> slots(want.slot_mapping.size() + 1);
    DeviceArray<std::int32_t> tables(Ints(want.block_tables.size() + 1, kGarbage)), seq(given.size() + 1),
        longest(1);
    device_ops::DeviceDecodeIndex out;
    out.slot_mapping = view_of(slots);
    out.block_tables = View<std::int32_t, 2>(tables.data(), {batch.requests(), want.max_blocks});
    out.seq_lens = view_of(seq);
    out.max_seq_len = view_of(longest);
    device_ops::build_decode_index(input_of(lens, batch.requests()), convention, batch.view(table.data()),
                                   batch.block_size, q_len, out);
    ASSERT_EQ(first(slots.read(), want.slot_mapping.size()), want.slot_mapping) << "seed " << seed;
    ASSERT_EQ(first(tables.read(), want.block_tables.size()), want.block_tables) << "seed " << seed;
    ASSERT_EQ(tables.read().back(), kGarbage);  // nothing past the table
    ASSERT_EQ(first(seq.read(), want.seq_lens.size()), want.seq_lens);
    ASSERT_EQ(longest.read(), Ints{want.max_seq_len});
  }
}

struct Sparse {
  DeviceArray<std::int32_t> indptr, indices, num;
  DeviceArray<std::int64_t> slots;
  Sparse(std::int64_t requests, std::int64_t capacity)
      : indptr(static_cast<std::size_t>(requests + 1)),
        indices(Ints(static_cast<std::size_t>(capacity + 1), kGarbage)),
        num(static_cast<std::size_t>(requests + 1)),
        slots(static_cast<std::size_t>(capacity + 1)) {}
  [[nodiscard]] device_ops::DeviceSparseIndex view() const {
    return {view_of(indptr), view_of(indices), view_of(slots), view_of(num)};
  }
  void expect(const SparseIndex& want, const std::string& what) const {
    EXPECT_EQ(indptr.read(), want.kv_indptr) << what;
    EXPECT_EQ(first(indices.read(), want.kv_indices.size()), want.kv_indices) << what;
    EXPECT_EQ(first(slots.read(), want.kv_slots.size()), want.kv_slots) << what;
    EXPECT_EQ(first(num.read(), want.num_kv.size()), want.num_kv) << what;
    EXPECT_EQ(indices.read().back(), kGarbage) << what << ": written past the capacity";
  }
};

TEST(IndexDevice, SparseAndPagesEqualHost) {
  MLA_NEEDS_GPU();
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Batch batch(seed, 9, seed % 5 == 0 ? 2'000'000'000 : 0);  // slots beyond 32 bits
    const CounterRng rng(seed, 4);
    const int window = static_cast<int>(rng.between(0, 1, 300)),
              sink = static_cast<int>(rng.between(1, 0, 40));
    DeviceArray<std::int32_t> table(batch.memory), lens(batch.lens);
    const auto seq = input_of(lens, batch.requests());
    const Sparse sparse(batch.requests(), device_ops::sparse_index_capacity(batch.requests(), window, sink,
                                                                            batch.columns, batch.block_size));
    device_ops::build_sparse_index(seq, window, sink, batch.view(table.data()), batch.block_size,
                                   sparse.view());
    sparse.expect(
        build_sparse_index(batch.lens, window, sink, batch.view(batch.memory.data()), batch.block_size),
        "seed " + std::to_string(seed));

    const PageIndex want =
        build_page_index(batch.lens, window, sink, batch.view(batch.memory.data()), batch.block_size);
    const std::int64_t capacity =
        device_ops::page_index_capacity(batch.requests(), window, sink, batch.columns, batch.block_size);
    DeviceArray<std::int32_t> indptr(batch.lens.size() + 1), ids(static_cast<std::size_t>(capacity + 1)),
        logical(static_cast<std::size_t>(capacity + 1)), last(batch.lens.size() + 1);
    device_ops::build_page_index(seq, window, sink, batch.view(table.data()), batch.block_size,
                                 {view_of(indptr), view_of(ids), view_of(logical), view_of(last)});
    ASSERT_EQ(indptr.read(), want.paged_kv_indptr) << "seed " << seed;
    ASSERT_EQ(first(ids.read(), want.paged_kv_indices.size()), want.paged_kv_indices) << "seed " << seed;
    ASSERT_EQ(first(logical.read(), want.logical_blocks.size()), want.logical_blocks) << "seed " << seed;
    ASSERT_EQ(first(last.read(), want.paged_kv_last_page_len.size()), want.paged_kv_last_page_len)
        << "seed " << seed;
  }
}

TEST(IndexDevice, ManyRequestsAndLongSequences) {
  MLA_NEEDS_GPU();
  Ints lens(400);
  for (std::size_t b = 0; b < lens.size(); ++b)
    lens[b] = static_cast<std::int32_t>(b % 7 == 3 ? 0 : (b * 37) % 200);
  lens[234] = 100'000;
  const Batch batch(lens, 64);
  DeviceArray<std::int32_t> table(batch.memory), device_lens(batch.lens);
  constexpr int kWindow = 90'000, kSink = 4;
  // The capacity of a table this wide is for all requests to be long; ours are not, so we give what the bound
  // asks for.
  const Sparse sparse(batch.requests(), device_ops::sparse_index_capacity(batch.requests(), kWindow, kSink,
                                                                          batch.columns, batch.block_size));
  device_ops::build_sparse_index(input_of(device_lens, batch.requests()), kWindow, kSink,
                                 batch.view(table.data()), batch.block_size, sparse.view());
  const SparseIndex want =
      build_sparse_index(batch.lens, kWindow, kSink, batch.view(batch.memory.data()), batch.block_size);
  EXPECT_EQ(sparse.indptr.read(), want.kv_indptr);
  EXPECT_EQ(sparse.indices.read(want.kv_indices.size()), want.kv_indices);
  EXPECT_EQ(sparse.slots.read(want.kv_slots.size()), want.kv_slots);
}

// MLA-055 of the public faults: a table without a row or a block for a token must not lead to a slot.
TEST(IndexDevice, MissingBlocksAreSkipped) {
  MLA_NEEDS_GPU();
  const Ints ids = {3, -1};  // one request, its second block is missing, a third would be past the table
  DeviceArray<std::int32_t> table(ids), lens(Ints{11});
  DeviceArray<std::int64_t> slots(11);
  DeviceArray<std::int32_t> cu_q(2), cu_k(2), q(Ints{11});
  device_ops::build_prefill_index(input_of(q, 1), input_of(lens, 1),
                                  View<const std::int32_t, 2>(table.data(), {1, 2}), 4,
                                  {view_of(slots), view_of(cu_q), view_of(cu_k), {}});
  EXPECT_EQ(slots.read(), (Slots{12, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1}));
}

}  // namespace
