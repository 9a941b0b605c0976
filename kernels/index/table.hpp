// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/fast_divide.hpp"
#include "common/strided.hpp"

/// What the index kernels are told, and the arithmetic that host and device share with <mla/index.hpp>.
namespace mla::kernels::index {

inline constexpr std::int64_t kNoSlot = -1;  // mla::kSkipSlot, without its header (index.cpp compares)

/// A block table that answers for positions it does not have: -1.
struct BlockTable {
  const std::int32_t* data = nullptr;
  std::int64_t row_stride = 0, column_stride = 1;
  std::int64_t rows = 0, columns = 0;
  std::int32_t block_size = 1;
  FastDivide by_block_size{};  // of that size

  [[nodiscard]] constexpr std::int32_t block(std::int64_t request, std::int64_t logical) const {
    if (logical < 0 || logical >= columns) return -1;
    const std::int32_t* const at = data + request * row_stride + logical * column_stride;
#ifdef __CUDA_ARCH__
    const std::int32_t id = __ldg(at);  // the kernels write elsewhere, so loads may overtake their stores
#else
    const std::int32_t id = *at;
#endif
    return id < 0 ? -1 : id;
  }
  [[nodiscard]] constexpr std::int64_t slot(std::int64_t request, std::int32_t position) const {
    if (position < 0) return kNoSlot;
    const std::int32_t logical = by_block_size.quotient(position);
    const std::int32_t id = block(request, logical);
    return id < 0 ? kNoSlot : static_cast<std::int64_t>(id) * block_size + (position - logical * block_size);
  }
};

/// Keys that the newest of `len` tokens sees: [0, sink_end) and [window_begin, len).
struct Kept {
  std::int32_t sink_end = 0, window_begin = 0, len = 0;
  [[nodiscard]] constexpr std::int32_t keys() const { return sink_end + len - window_begin; }
  [[nodiscard]] constexpr std::int32_t key(std::int32_t i) const {
    return i < sink_end ? i : window_begin + i - sink_end;
  }
  /// Blocks touched by the sink alone; a block that holds both belongs to the window.
  [[nodiscard]] constexpr std::int32_t sink_blocks(std::int32_t block_size) const {
    const std::int32_t own = (sink_end + block_size - 1) / block_size;
    const std::int32_t window_block = window_begin / block_size;
    return own < window_block ? own : window_block;
  }
  [[nodiscard]] constexpr std::int32_t blocks(std::int32_t block_size) const {
    return sink_blocks(block_size) + (len + block_size - 1) / block_size - window_begin / block_size;
  }
  [[nodiscard]] constexpr std::int32_t block(std::int32_t i, std::int32_t block_size) const {
    const std::int32_t sink = sink_blocks(block_size);
    return i < sink ? i : window_begin / block_size + i - sink;
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
