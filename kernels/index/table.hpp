// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/fast_divide.hpp"
#include "common/strided.hpp"

/// What the index kernels are told, and the arithmetic that host and device share with <mla/index.hpp>.
namespace mla::kernels::index {

inline constexpr std::int64_t kNoSlot = -1;  // mla::kSkipSlot, without its header (index.cpp compares)

/// A block table that answers for positions it does not have: -1. Loads of many entries can be under way at once
/// where slot_in() waits for `stored()` later.
struct BlockTable {
  const std::int32_t* data = nullptr;
  std::int64_t row_stride = 0, column_stride = 1;
  std::int64_t rows = 0, columns = 0;
  std::int32_t block_size = 1;
  FastDivide by_block_size{};  // of that size

  /// As the table has it: any negative number is no block.
  [[nodiscard]] constexpr std::int32_t stored(std::int64_t request, std::int64_t logical) const {
    if (logical < 0 || logical >= columns) return -1;
    const std::int32_t* const at = data + request * row_stride + logical * column_stride;
#ifdef __CUDA_ARCH__
    return __ldg(at);  // the kernels write elsewhere, so loads may overtake their stores
#else
    return *at;
#endif
  }
  [[nodiscard]] constexpr std::int32_t logical_block(std::int32_t position) const {
    return position < 0 ? -1 : by_block_size.quotient(position);
  }
  /// `id`: what is stored for the position's logical block.
  [[nodiscard]] constexpr std::int64_t slot_in(std::int32_t id, std::int32_t position) const {
    if (id < 0) return kNoSlot;
    return static_cast<std::int64_t>(id) * block_size + (position - logical_block(position) * block_size);
  }
  [[nodiscard]] constexpr std::int64_t slot(std::int64_t request, std::int32_t position) const {
    return slot_in(stored(request, logical_block(position)), position);
  }
};

/// Keys that the newest of `len` tokens sees: [0, sink_end) and [window_begin, len).
struct Kept {
  std::int32_t sink_end = 0, window_begin = 0, len = 0;
  [[nodiscard]] constexpr std::int32_t keys() const { return sink_end + len - window_begin; }
  [[nodiscard]] constexpr std::int32_t key(std::int32_t i) const {
    return i < sink_end ? i : window_begin + i - sink_end;
  }
};
/// Blocks that hold them: [0, sink) and `window` of those from `window_begin` on. A block that holds keys of both
/// belongs to the window.
struct KeptBlocks {
  std::int32_t sink = 0, window_begin = 0, window = 0;
  constexpr KeptBlocks(const Kept& keys, std::int32_t block_size)
      : window_begin(keys.window_begin / block_size),
        window((keys.len + block_size - 1) / block_size - window_begin) {
    const std::int32_t own = (keys.sink_end + block_size - 1) / block_size;
    sink = own < window_begin ? own : window_begin;
  }
  [[nodiscard]] constexpr std::int32_t blocks() const { return sink + window; }
  [[nodiscard]] constexpr std::int32_t block(std::int32_t i) const {
    return i < sink ? i : window_begin + i - sink;
  }
};
[[nodiscard]] constexpr Kept kept_keys(std::int32_t len, std::int32_t window, std::int32_t sink) {
  const std::int32_t n = len < 0 ? 0 : len;
  const std::int32_t begin = n > window ? n - window : 0;
  return {sink < begin ? sink : begin, begin, n};
}

struct PrefillParams {
  BlockTable table;
  Strided<const std::int32_t> q_lens, seq_lens;
  std::int32_t requests = 0;
  std::int64_t capacity = 0;
  Strided<std::int64_t> slot_mapping;
  Strided<std::int32_t> cu_seqlens_q, cu_seqlens_k, max_seq_lens;
};

struct DecodeParams {
  BlockTable table;
  Strided<const std::int32_t> seq_lens;
  std::int32_t added = 0;  // new tokens that seq_lens does not count yet
  std::int32_t requests = 0, q_len = 1;
  Strided<std::int64_t> slot_mapping;
  std::int32_t* block_tables = nullptr;  // [requests, out_columns]
  std::int64_t out_row = 0, out_column = 1, out_columns = 0;
  Strided<std::int32_t> out_seq_lens, max_seq_len;
};

struct SparseParams {
  BlockTable table;
  Strided<const std::int32_t> seq_lens;
  std::int32_t requests = 0, window = 1, sink = 0;
  Strided<std::int32_t> kv_indptr, kv_indices, num_kv;
  Strided<std::int64_t> kv_slots;
  std::int64_t capacity = 0;
};

struct PageParams {
  BlockTable table;
  Strided<const std::int32_t> seq_lens;
  std::int32_t requests = 0, window = 1, sink = 0;
  Strided<std::int32_t> indptr, indices, logical, last_page_len;
  std::int64_t capacity = 0;
};

/// What one architecture's object offers; `stream` is a cudaStream_t.
struct Table {
  void (*prefill)(const PrefillParams&, void* stream);
  void (*decode)(const DecodeParams&, void* stream);
  void (*sparse)(const SparseParams&, void* stream);
  void (*pages)(const PageParams&, void* stream);
};

/// That of the current device. Throws kUnsupported or kDevice where there is none.
[[nodiscard]] const Table& table();

}  // namespace mla::kernels::index
