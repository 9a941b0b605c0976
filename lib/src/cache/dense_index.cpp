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

/// Slots of the last q_len of kv_len positions; padding (no keys at all) is not written.
void append_new_slots(std::vector<std::int64_t>& slots, const BlockLookup& lookup, std::int64_t b,
                      std::int32_t q_len, std::int32_t kv_len) {
  for (std::int32_t i = 0; i < q_len; ++i) {
    slots.push_back(kv_len == 0 ? kSkipSlot : lookup.slot(b, std::int64_t{kv_len} - q_len + i));
  }
}

}  // namespace

PrefillIndex build_prefill_index(std::span<const Request> batch, View<const std::int32_t, 2> block_table,
                                 int block_size) {
  const BlockLookup lookup(block_table, block_size, batch.size());
  PrefillIndex index;
  std::int64_t total_q = 0;
  std::int64_t total_k = 0;
  index.cu_seqlens_q.push_back(0);
  index.cu_seqlens_k.push_back(0);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto [q_len, kv_len] = batch[i];
    if (q_len < 0) refuse(fmt::format("request {} has q_len {}, but it must be >= 0", i, q_len));
    if (kv_len < 0) refuse(fmt::format("request {} has kv_len {}, but it must be >= 0", i, kv_len));
    if (kv_len > 0 && q_len > kv_len) {
      refuse(fmt::format("request {} has kv_len {}, but that includes its {} new tokens", i, kv_len, q_len));
    }
    const auto b = static_cast<std::int64_t>(i);
    lookup.require_columns(b, kv_len);
    append_total(index.cu_seqlens_q, total_q += q_len, "cu_seqlens_q");
    append_total(index.cu_seqlens_k, total_k += kv_len, "cu_seqlens_k");
    append_new_slots(index.slot_mapping, lookup, b, q_len, kv_len);
    index.max_seq_len_q = std::max(index.max_seq_len_q, q_len);
    index.max_seq_len_k = std::max(index.max_seq_len_k, kv_len);
  }
  return index;
}

DecodeIndex build_decode_index(std::span<const std::int32_t> seq_lens, SeqLens convention,
                               View<const std::int32_t, 2> block_table, int block_size, int q_len) {
  if (q_len < 1) refuse(fmt::format("q_len is {}, but must be >= 1", q_len));
  const BlockLookup lookup(block_table, block_size, seq_lens.size());
  DecodeIndex index;
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    const std::int64_t len =
        std::int64_t{seq_lens[i]} + (convention == SeqLens::kExcludeNewTokens ? q_len : 0);
    if (len < 0 || (len > 0 && len < q_len)) {
      refuse(fmt::format("seq_lens[{}] is {}, which leaves {} tokens in all, but {} of them are new", i,
                         seq_lens[i], len, q_len));
    }
    append_total(index.seq_lens, len, "seq_lens");
    lookup.require_columns(static_cast<std::int64_t>(i), len);
    index.max_seq_len = std::max(index.max_seq_len, index.seq_lens.back());
  }
  index.max_blocks = static_cast<std::int32_t>(lookup.blocks_of(index.max_seq_len));
  index.block_tables.assign(seq_lens.size() * static_cast<std::size_t>(index.max_blocks), 0);
  for (std::size_t i = 0; i < seq_lens.size(); ++i) {
    const auto b = static_cast<std::int64_t>(i);
    append_new_slots(index.slot_mapping, lookup, b, q_len, index.seq_lens[i]);
    std::int32_t* const row = index.block_tables.data() + i * static_cast<std::size_t>(index.max_blocks);
    for (std::int64_t j = 0; j < lookup.blocks_of(index.seq_lens[i]); ++j) row[j] = lookup.block(b, j);
  }
  return index;
}

}  // namespace mla
