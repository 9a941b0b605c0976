// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/require.hpp"
#include "index/table.hpp"
#include "mla/device_ops.hpp"
#include "mla/index.hpp"

namespace mla::device_ops {
namespace {

using kernels::refuse;
using kernels::require_size;
namespace index = kernels::index;
static_assert(index::kNoSlot == kSkipSlot);

index::BlockTable table_of(View<const std::int32_t, 2> view, int block_size, std::int64_t requests) {
  if (block_size < 1) refuse(fmt::format("block_size is {}, but must be >= 1", block_size));
  if (view.extent[0] < requests) {
    refuse(fmt::format("block_table has {} rows, but there are {} requests", view.extent[0], requests));
  }
  if (!view && view.extent[1] > 0) refuse("block_table is missing");
  return {view.data,
          view.stride[0],
          view.stride[1],
          view.extent[0],
          view.extent[1],
          block_size,
          kernels::FastDivide(block_size)};
}

std::int32_t count_of(View<const std::int32_t, 1> lengths, const char* name) {
  if (lengths.extent[0] > std::numeric_limits<std::int32_t>::max() - 1) {
    refuse(fmt::format("{} has {} entries, but requests are counted in int32", name, lengths.extent[0]));
  }
  if (!lengths && lengths.extent[0] > 0) refuse(fmt::format("{} is missing", name));
  return static_cast<std::int32_t>(lengths.extent[0]);
}

void check_window(int window, int sink) {
  if (window < 1) refuse(fmt::format("window is {}, but must be >= 1 (it counts the newest token)", window));
  if (sink < 0) refuse(fmt::format("sink is {}, but must be >= 0", sink));
}

}  // namespace

void build_prefill_index(View<const std::int32_t, 1> q_lens, View<const std::int32_t, 1> seq_lens,
                         View<const std::int32_t, 2> block_table, int block_size,
                         const DevicePrefillIndex& out, Stream stream) {
  index::PrefillParams p;
  p.requests = count_of(q_lens, "q_lens");
  if (seq_lens.extent[0] != p.requests) {
    refuse(fmt::format("seq_lens has {} entries, but q_lens has {}", seq_lens.extent[0], p.requests));
  }
  require_size(out.cu_seqlens_q, "cu_seqlens_q", p.requests + 1);
  require_size(out.cu_seqlens_k, "cu_seqlens_k", p.requests + 1);
  if (out.max_seq_lens) require_size(out.max_seq_lens, "max_seq_lens", 2);
  p.table = table_of(block_table, block_size, p.requests);
  p.q_lens = q_lens;
  p.seq_lens = seq_lens;
  p.capacity = out.slot_mapping.extent[0];
  p.slot_mapping = out.slot_mapping;
  p.cu_seqlens_q = out.cu_seqlens_q;
  p.cu_seqlens_k = out.cu_seqlens_k;
  p.max_seq_lens = out.max_seq_lens;
  index::table().prefill(p, stream.handle);
}

void build_decode_index(View<const std::int32_t, 1> seq_lens, SeqLens convention,
                        View<const std::int32_t, 2> block_table, int block_size, int q_len,
                        const DeviceDecodeIndex& out, Stream stream) {
  if (q_len < 1) refuse(fmt::format("q_len is {}, but must be >= 1", q_len));
  index::DecodeParams p;
  p.requests = count_of(seq_lens, "seq_lens");
  require_size(out.slot_mapping, "slot_mapping", std::int64_t{p.requests} * q_len);
  require_size(out.seq_lens, "the index's seq_lens", p.requests);
  if (out.max_seq_len) require_size(out.max_seq_len, "max_seq_len", 1);
  if (out.block_tables.extent[0] < p.requests || (!out.block_tables && out.block_tables.extent[1] > 0)) {
    refuse(fmt::format("block_tables has {} rows, but there are {} requests", out.block_tables.extent[0],
                       p.requests));
  }
  p.table = table_of(block_table, block_size, p.requests);
  p.seq_lens = seq_lens;
  p.added = convention == SeqLens::kExcludeNewTokens ? q_len : 0;
  p.q_len = q_len;
  p.slot_mapping = out.slot_mapping;
  p.block_tables = out.block_tables.data;
  p.out_row = out.block_tables.stride[0];
  p.out_column = out.block_tables.stride[1];
  p.out_columns = out.block_tables.extent[1];
  p.out_seq_lens = out.seq_lens;
  p.max_seq_len = out.max_seq_len;
  index::table().decode(p, stream.handle);
}

std::int64_t sparse_index_capacity(std::int64_t requests, int window, int sink, std::int64_t columns,
                                   int block_size) {
  check_window(window, sink);
  return requests * std::min(std::int64_t{window} + sink, columns * block_size);
}

void build_sparse_index(View<const std::int32_t, 1> seq_lens, int window, int sink,
                        View<const std::int32_t, 2> block_table, int block_size, const DeviceSparseIndex& out,
                        Stream stream) {
  index::SparseParams p;
  p.requests = count_of(seq_lens, "seq_lens");
  p.table = table_of(block_table, block_size, p.requests);
  p.capacity = sparse_index_capacity(p.requests, window, sink, block_table.extent[1], block_size);
  require_size(out.kv_indptr, "kv_indptr", p.requests + 1);
  require_size(out.kv_indices, "kv_indices", p.capacity);
  if (out.kv_slots) require_size(out.kv_slots, "kv_slots", p.capacity);
  if (out.num_kv) require_size(out.num_kv, "num_kv", p.requests);
  p.seq_lens = seq_lens;
  p.window = window;
  p.sink = sink;
  p.kv_indptr = out.kv_indptr;
  p.kv_indices = out.kv_indices;
  p.kv_slots = out.kv_slots;
  p.num_kv = out.num_kv;
  index::table().sparse(p, stream.handle);
}

std::int64_t page_index_capacity(std::int64_t requests, int window, int sink, std::int64_t columns,
                                 int block_size) {
  check_window(window, sink);
  if (block_size < 1) refuse(fmt::format("block_size is {}, but must be >= 1", block_size));
  // A window that starts inside a block touches one more than it fills.
  const std::int64_t touched =
      (std::int64_t{sink} + block_size - 1) / block_size + (std::int64_t{window} - 1) / block_size + 2;
  return requests * std::min(touched, columns);
}

void build_page_index(View<const std::int32_t, 1> seq_lens, int window, int sink,
                      View<const std::int32_t, 2> block_table, int block_size, const DevicePageIndex& out,
                      Stream stream) {
  index::PageParams p;
  p.requests = count_of(seq_lens, "seq_lens");
  p.table = table_of(block_table, block_size, p.requests);
  p.capacity = page_index_capacity(p.requests, window, sink, block_table.extent[1], block_size);
  require_size(out.paged_kv_indptr, "paged_kv_indptr", p.requests + 1);
  require_size(out.paged_kv_indices, "paged_kv_indices", p.capacity);
  if (out.logical_blocks) require_size(out.logical_blocks, "logical_blocks", p.capacity);
  require_size(out.paged_kv_last_page_len, "paged_kv_last_page_len", p.requests);
  p.seq_lens = seq_lens;
  p.window = window;
  p.sink = sink;
  p.indptr = out.paged_kv_indptr;
  p.indices = out.paged_kv_indices;
  p.logical = out.logical_blocks;
  p.last_page_len = out.paged_kv_last_page_len;
  index::table().pages(p, stream.handle);
}

}  // namespace mla::device_ops
