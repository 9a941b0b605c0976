// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mla/export.h"
#include "mla/shape.hpp"
#include "mla/tensor.hpp"

/// The index arrays that tell a kernel where to write and which rows to read. All are int32 except slots
/// (int64). Convention everywhere in this project: seq_lens *includes* the new tokens, so the newest token of
/// a request stands at position seq_len - 1. Functions that accept the other convention say so in their
/// argument.
namespace mla {

/// How a caller counts seq_lens.
enum class SeqLens : std::uint8_t { kIncludeNewTokens, kExcludeNewTokens };

/// Slot that marks "do not write" (padding).
inline constexpr std::int64_t kSkipSlot = -1;

struct PrefillIndex {
  std::vector<std::int64_t> slot_mapping;  ///< [sum q_len] slot of each new token
  std::vector<std::int32_t> cu_seqlens_q;  ///< [requests + 1]
  std::vector<std::int32_t> cu_seqlens_k;  ///< [requests + 1]
  std::int32_t max_seq_len_q = 0;
  std::int32_t max_seq_len_k = 0;
};

struct DecodeIndex {
  std::vector<std::int64_t>
      slot_mapping;  ///< [requests * q_len] slot of each new token, kSkipSlot for empty requests
  std::vector<std::int32_t> block_tables;  ///< [requests, max_blocks] packed copy, unused columns 0
  std::vector<std::int32_t> seq_lens;      ///< [requests], new tokens included
  std::int32_t max_blocks = 0;
  std::int32_t max_seq_len = 0;
};

/// Token-level CSR of the keys each request's newest token may see, ascending.
struct SparseIndex {
  std::vector<std::int32_t> kv_indptr;   ///< [requests + 1]
  std::vector<std::int32_t> kv_indices;  ///< positions in the sequence
  std::vector<std::int64_t> kv_slots;    ///< the same keys as physical slots
  std::vector<std::int32_t> num_kv;      ///< [requests]
};

/// Page-level CSR: the physical blocks that hold at least one visible key, sink blocks first, ascending.
struct PageIndex {
  std::vector<std::int32_t> paged_kv_indptr;   ///< [requests + 1]
  std::vector<std::int32_t> paged_kv_indices;  ///< physical block ids
  std::vector<std::int32_t> logical_blocks;    ///< the same blocks, by position in the sequence
  std::vector<std::int32_t>
      paged_kv_last_page_len;  ///< [requests], in 1..block_size, 0 only for an empty request
};

/// New tokens of each request are the last q_len of kv_len; a request with kv_len 0 is padding, whose q_len
/// slots are kSkipSlot. Every function here throws kInvalidArgument naming the value: block_size < 1, a table
/// with too few rows or columns, q_len > kv_len > 0, a negative length, a negative block id where one is
/// needed, a total beyond int32.
[[nodiscard]] MLA_EXPORT PrefillIndex build_prefill_index(std::span<const Request> batch,
                                                          View<const std::int32_t, 2> block_table,
                                                          int block_size);

/// `seq_lens` by `convention`; `q_len` new tokens a request (1 without speculation). A request whose sequence
/// is empty with its new tokens (padding of a captured graph: 0, or -q_len where new tokens are excluded)
/// gets seq_len 0 and kSkipSlot.
[[nodiscard]] MLA_EXPORT DecodeIndex build_decode_index(std::span<const std::int32_t> seq_lens,
                                                        SeqLens convention,
                                                        View<const std::int32_t, 2> block_table,
                                                        int block_size, int q_len = 1);

/// Window + sink for the newest token: keys [0, sink) and [len - window, len), overlap counted once.
[[nodiscard]] MLA_EXPORT SparseIndex build_sparse_index(std::span<const std::int32_t> seq_lens, int window,
                                                        int sink, View<const std::int32_t, 2> block_table,
                                                        int block_size);

/// Blocks touched by the same window + sink.
[[nodiscard]] MLA_EXPORT PageIndex build_page_index(std::span<const std::int32_t> seq_lens, int window,
                                                    int sink, View<const std::int32_t, 2> block_table,
                                                    int block_size);

/// Slot of position p: block_table(b, p / block_size) * block_size + p % block_size; p < 0 gives kSkipSlot.
/// Throws kInvalidArgument where the table has no such row or column.
[[nodiscard]] MLA_EXPORT std::int64_t slot_of(View<const std::int32_t, 2> block_table, int block_size,
                                              std::int64_t b, std::int64_t position);

/// ((len - 1) mod block_size) + 1 for len >= 1; 0 for len 0.
[[nodiscard]] constexpr std::int32_t last_page_len(std::int64_t len, int block_size) noexcept {
  return len <= 0 ? 0 : static_cast<std::int32_t>((len - 1) % block_size + 1);
}

}  // namespace mla
