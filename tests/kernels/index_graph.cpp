// SPDX-License-Identifier: Apache-2.0
// The device indexers of a decode and of a prefill step in one captured graph, replayed while the lengths on
// the device change: every replay gives what the host functions give for the lengths as they are then.
// Requests of length 0 are the padding of a graph captured for more requests than there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "device_array.hpp"
#include "device_graph.hpp"
#include "mla/device_ops.hpp"
#include "mla/index.hpp"

namespace {

using namespace mla;
using mla::testing::DeviceArray;
using mla::testing::DeviceGraph;
using Ints = std::vector<std::int32_t>;
using Slots = std::vector<std::int64_t>;

constexpr std::int64_t kRequests = 6, kColumns = 12;
constexpr int kBlockSize = 16, kWindow = 40, kSink = 4;
constexpr auto kMostTokens = static_cast<std::size_t>(kRequests * kColumns * kBlockSize);

template <class T>
View<T, 1> view_of(const DeviceArray<T>& array) {
  return {array.data(), {static_cast<std::int64_t>(array.size())}};
}
View<const std::int32_t, 1> lengths_of(const DeviceArray<std::int32_t>& array) {
  return {array.data(), {kRequests}};
}
template <class T>
std::vector<T> first(std::vector<T> values, std::size_t count) {
  values.resize(count);
  return values;
}

/// Arrays that all four indexers write.
struct Arrays {
  DeviceArray<std::int64_t> prefill_slots{kMostTokens}, decode_slots{kRequests};
  DeviceArray<std::int32_t> cu_q{kRequests + 1}, cu_k{kRequests + 1}, longest{2};
  DeviceArray<std::int32_t> tables{kRequests * kColumns}, seq_lens{kRequests}, longest_decode{1};
  DeviceArray<std::int32_t> sparse_indptr{kRequests + 1}, sparse_indices, num_kv{kRequests};
  DeviceArray<std::int64_t> sparse_slots;
  DeviceArray<std::int32_t> page_indptr{kRequests + 1}, page_ids, logical, last_page_len{kRequests};

  Arrays(std::int64_t sparse, std::int64_t pages)
      : sparse_indices(static_cast<std::size_t>(sparse)),
        sparse_slots(static_cast<std::size_t>(sparse)),
        page_ids(static_cast<std::size_t>(pages)),
        logical(static_cast<std::size_t>(pages)) {}
};

TEST(IndexGraph, FollowsTheLengths) {
  MLA_NEEDS_GPU();
  Ints ids(kRequests * kColumns);
  std::iota(ids.begin(), ids.end(), 100);
  std::reverse(ids.begin(), ids.end());
  const View<const std::int32_t, 2> host_table(ids.data(), {kRequests, kColumns});
  const DeviceArray<std::int32_t> table(ids);
  const View<const std::int32_t, 2> device_table(table.data(), {kRequests, kColumns});
  DeviceArray<std::int32_t> q_lens(Ints(kRequests, 0)), kv_lens(Ints(kRequests, 0));
  const Arrays a(device_ops::sparse_index_capacity(kRequests, kWindow, kSink, kColumns, kBlockSize),
                 device_ops::page_index_capacity(kRequests, kWindow, kSink, kColumns, kBlockSize));
  const auto enqueue = [&](Stream stream) {
    device_ops::build_prefill_index(
        lengths_of(q_lens), lengths_of(kv_lens), device_table, kBlockSize,
        {view_of(a.prefill_slots), view_of(a.cu_q), view_of(a.cu_k), view_of(a.longest)}, stream);
    device_ops::DeviceDecodeIndex decode;
    decode.slot_mapping = view_of(a.decode_slots);
    decode.block_tables = View<std::int32_t, 2>(a.tables.data(), {kRequests, kColumns});
    decode.seq_lens = view_of(a.seq_lens);
    decode.max_seq_len = view_of(a.longest_decode);
    device_ops::build_decode_index(lengths_of(kv_lens), SeqLens::kIncludeNewTokens, device_table, kBlockSize,
                                   1, decode, stream);
    device_ops::build_sparse_index(
        lengths_of(kv_lens), kWindow, kSink, device_table, kBlockSize,
        {view_of(a.sparse_indptr), view_of(a.sparse_indices), view_of(a.sparse_slots), view_of(a.num_kv)},
        stream);
    device_ops::build_page_index(
        lengths_of(kv_lens), kWindow, kSink, device_table, kBlockSize,
        {view_of(a.page_indptr), view_of(a.page_ids), view_of(a.logical), view_of(a.last_page_len)}, stream);
  };
  enqueue({});
  (void)a.cu_q.read();  // loaded and done
  DeviceGraph graph(enqueue);

  const std::vector<std::vector<Request>> rounds = {
      {{1, 1}, {3, 17}, {16, 16}, {1, 192}, {5, 64}, {2, 100}},  // full
      {{1, 2}, {3, 18}, {15, 31}, {1, 41}, {5, 69}, {0, 0}},     // one finished
      {{1, 64}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}},         // one of six is alive
      {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}},          // nothing but padding
      {{192, 192}, {1, 45}, {1, 44}, {7, 48}, {1, 16}, {1, 15}}};
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const std::vector<Request>& requests = rounds[round];
    Ints q, kv;
    for (const Request& r : requests) q.push_back(r.q_len), kv.push_back(r.kv_len);
    q_lens.write(q);
    kv_lens.write(kv);
    graph.replay();

    const PrefillIndex prefill = build_prefill_index(requests, host_table, kBlockSize);
    Slots slots = prefill.slot_mapping;
    slots.resize(kMostTokens, kSkipSlot);
    EXPECT_EQ(a.prefill_slots.read(), slots) << "round " << round;
    EXPECT_EQ(a.cu_q.read(), prefill.cu_seqlens_q) << "round " << round;
    EXPECT_EQ(a.cu_k.read(), prefill.cu_seqlens_k) << "round " << round;
    EXPECT_EQ(a.longest.read(), (Ints{prefill.max_seq_len_q, prefill.max_seq_len_k})) << "round " << round;

    const DecodeIndex decode = build_decode_index(kv, SeqLens::kIncludeNewTokens, host_table, kBlockSize, 1);
    EXPECT_EQ(a.decode_slots.read(), decode.slot_mapping) << "round " << round;
    EXPECT_EQ(a.seq_lens.read(), decode.seq_lens) << "round " << round;
    EXPECT_EQ(a.longest_decode.read(), Ints{decode.max_seq_len}) << "round " << round;
    const Ints tables = a.tables.read();
    for (std::int64_t b = 0; b < kRequests; ++b) {
      for (std::int64_t j = 0; j < kColumns; ++j) {
        const std::int32_t want =
            j < decode.max_blocks ? decode.block_tables[static_cast<std::size_t>(b * decode.max_blocks + j)]
                                  : 0;
        ASSERT_EQ(tables[static_cast<std::size_t>(b * kColumns + j)], want)
            << "round " << round << " request " << b << " column " << j;
      }
    }

    const SparseIndex sparse = build_sparse_index(kv, kWindow, kSink, host_table, kBlockSize);
    EXPECT_EQ(a.sparse_indptr.read(), sparse.kv_indptr) << "round " << round;
    EXPECT_EQ(first(a.sparse_indices.read(), sparse.kv_indices.size()), sparse.kv_indices)
        << "round " << round;
    EXPECT_EQ(first(a.sparse_slots.read(), sparse.kv_slots.size()), sparse.kv_slots) << "round " << round;
    EXPECT_EQ(a.num_kv.read(), sparse.num_kv) << "round " << round;

    const PageIndex pages = build_page_index(kv, kWindow, kSink, host_table, kBlockSize);
    EXPECT_EQ(a.page_indptr.read(), pages.paged_kv_indptr) << "round " << round;
    EXPECT_EQ(first(a.page_ids.read(), pages.paged_kv_indices.size()), pages.paged_kv_indices)
        << "round " << round;
    EXPECT_EQ(first(a.logical.read(), pages.logical_blocks.size()), pages.logical_blocks)
        << "round " << round;
    EXPECT_EQ(a.last_page_len.read(), pages.paged_kv_last_page_len) << "round " << round;
  }
}

}  // namespace
