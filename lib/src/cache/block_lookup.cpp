// SPDX-License-Identifier: Apache-2.0
#include "cache/block_lookup.hpp"

#include <fmt/format.h>

#include <limits>

#include "mla/error.hpp"
#include "mla/index.hpp"

namespace mla {

BlockLookup::BlockLookup(View<const std::int32_t, 2> table, int block_size, std::size_t requests)
    : table_(table), block_size_(block_size) {
  if (block_size < 1) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("block_size is {}, but must be >= 1", block_size));
  }
  if (table.extent[0] < static_cast<std::int64_t>(requests)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("block_table has {} rows, but there are {} requests", table.extent[0], requests));
  }
}

void BlockLookup::require_columns(std::int64_t b, std::int64_t len) const {
  const std::int64_t columns = table_ ? table_.extent[1] : 0;
  if (columns < blocks_of(len)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("block_table has {} columns, but request {} has {} tokens, which take {} blocks of {}",
                    columns, b, len, blocks_of(len), block_size_));
  }
}

std::int32_t BlockLookup::block(std::int64_t b, std::int64_t logical) const {
  const std::int32_t id = table_(b, logical);
  if (id < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("block_table[{}][{}] is {}, but this block is in use, so its id must be >= 0", b,
                            logical, id));
  }
  return id;
}

void append_total(std::vector<std::int32_t>& totals, std::int64_t total, std::string_view name) {
  if (total > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} would reach {}, but its elements are int32, at most 2147483647", name, total),
                "cut the batch");
  }
  totals.push_back(static_cast<std::int32_t>(total));
}

std::int64_t slot_of(View<const std::int32_t, 2> block_table, int block_size, std::int64_t b,
                     std::int64_t position) {
  if (b < 0) throw Error(ErrorCode::kInvalidArgument, fmt::format("request is {}, but must be >= 0", b));
  const BlockLookup lookup(block_table, block_size, static_cast<std::size_t>(b) + 1);
  if (position < 0) return kSkipSlot;
  lookup.require_columns(b, position + 1);
  return lookup.slot(b, position);
}

}  // namespace mla
