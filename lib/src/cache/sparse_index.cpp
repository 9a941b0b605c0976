// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cache/block_lookup.hpp"
#include "mla/error.hpp"
#include "mla/index.hpp"

namespace mla {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

void check_window(int window, int sink) {
  if (window < 1) refuse(fmt::format("window is {}, but must be >= 1 (it counts the newest token)", window));
  if (sink < 0) refuse(fmt::format("sink is {}, but must be >= 0", sink));
}

/// What the newest of `len` tokens may see: [0, sink_end) and [window_begin, len), disjoint.
struct Kept {
  std::int64_t sink_end;
  std::int64_t window_begin;
};
Kept kept_keys(std::int32_t len, int window, int sink) {
  const std::int64_t window_begin = std::max<std::int64_t>(0, std::int64_t{len} - window);
  return {std::min<std::int64_t>(sink, window_begin), window_begin};
}

std::int32_t checked_len(std::span<const std::int32_t> seq_lens, std::size_t i) {
  if (seq_lens[i] < 0) refuse(fmt::format("seq_lens[{}] is {}, but must be >= 0", i, seq_lens[i]));
  return seq_lens[i];
}

}  // namespace

SparseIndex build_sparse_index(std::span<const std::int32_t> seq_lens, int window, int sink,
                               View<const std::int32_t, 2> block_table, int block_size) {
  check_window(window, sink);
  const BlockLookup lookup(block_table, block_size, seq_lens.size());
  SparseIndex index;
  std::int64_t total = 0;
  index.kv_indptr.push_back(0);
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    const std::int32_t len = checked_len(seq_lens, i);
    const Kept kept = kept_keys(len, window, sink);
    const auto count = static_cast<std::int32_t>(kept.sink_end + len - kept.window_begin);
    append_total(index.kv_indptr, total += count, "kv_indptr");
    index.num_kv.push_back(count);
    const auto b = static_cast<std::int64_t>(i);
    lookup.require_columns(b, len);
    const auto append = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        index.kv_indices.push_back(static_cast<std::int32_t>(p));
        index.kv_slots.push_back(lookup.slot(b, p));
      }
    };
    append(0, kept.sink_end);
    append(kept.window_begin, len);
  }
  return index;
}

PageIndex build_page_index(std::span<const std::int32_t> seq_lens, int window, int sink,
                           View<const std::int32_t, 2> block_table, int block_size) {
  check_window(window, sink);
  const BlockLookup lookup(block_table, block_size, seq_lens.size());
  PageIndex index;
  index.paged_kv_indptr.push_back(0);
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    const std::int32_t len = checked_len(seq_lens, i);
    const Kept kept = kept_keys(len, window, sink);
    const auto b = static_cast<std::int64_t>(i);
    lookup.require_columns(b, len);
    const auto append = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) {
        index.logical_blocks.push_back(static_cast<std::int32_t>(j));
        index.paged_kv_indices.push_back(lookup.block(b, j));
      }
    };
    // A block that holds both sink and window keys belongs to the window.
    const std::int64_t window_block = kept.window_begin / block_size;
    append(0, std::min(lookup.blocks_of(kept.sink_end), window_block));
    append(window_block, lookup.blocks_of(len));
    append_total(index.paged_kv_indptr, static_cast<std::int64_t>(index.paged_kv_indices.size()),
                 "paged_kv_indptr");
    index.paged_kv_last_page_len.push_back(last_page_len(len, block_size));
  }
  return index;
}

}  // namespace mla
