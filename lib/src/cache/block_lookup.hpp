// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mla/tensor.hpp"

namespace mla {

/// A block table that checks what is asked of it: the one place where all indexers turn a position into a
/// slot.
class BlockLookup {
 public:
  /// Throws kInvalidArgument unless block_size >= 1 and the table has a row for each of `requests`.
  BlockLookup(View<const std::int32_t, 2> table, int block_size, std::size_t requests);

  /// Blocks that `len` tokens occupy.
  [[nodiscard]] std::int64_t blocks_of(std::int64_t len) const noexcept {
    return (len + block_size_ - 1) / block_size_;
  }
  /// Throws unless row b has a column for each block of `len` tokens.
  void require_columns(std::int64_t b, std::int64_t len) const;
  /// Physical block id; throws on a negative id. The column must exist.
  [[nodiscard]] std::int32_t block(std::int64_t b, std::int64_t logical) const;
  [[nodiscard]] std::int64_t slot(std::int64_t b, std::int64_t position) const {
    return std::int64_t{block(b, position / block_size_)} * block_size_ + position % block_size_;
  }

 private:
  View<const std::int32_t, 2> table_;
  int block_size_;
};

/// Appends a running total to an int32 index array; throws kInvalidArgument when it does not fit.
void append_total(std::vector<std::int32_t>& totals, std::int64_t total, std::string_view name);

}  // namespace mla
