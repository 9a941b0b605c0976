// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mla/reference.hpp"

/// Which keys take part: every strategy here reads only keys that at least one query sees, gathered into one
/// array, so that memory no query sees cannot reach a result and a window saves the work it promises to save.
namespace mla::reference::detail {

/// What one query sees of the gathered keys: columns [0, head_end) and [tail_begin, tail_end), disjoint.
struct Columns {
  std::int64_t head_end = 0;
  std::int64_t tail_begin = 0;
  std::int64_t tail_end = 0;
  [[nodiscard]] constexpr bool has(std::int64_t column) const noexcept {
    return column < head_end || (column >= tail_begin && column < tail_end);
  }
  [[nodiscard]] constexpr std::int64_t count() const noexcept { return head_end + tail_end - tail_begin; }
};

/// The keys of one request that its queries see, in ascending order of position; a "column" is an index into
/// them.
class VisibleKeys {
 public:
  /// `first_token` is the request's first row in visible.token_index.
  VisibleKeys(const Request& request, const Visibility& visible, std::int64_t first_token);

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// Position in the sequence of a column.
  [[nodiscard]] std::int64_t position(std::int64_t column) const noexcept {
    if (indexed_) return needed_[static_cast<std::size_t>(column)];
    return column < head_ ? column : column + gap_;
  }
  /// True where an explicit index, not the mask, says what a query sees.
  [[nodiscard]] bool indexed() const noexcept { return indexed_; }
  /// Masked requests: what query `i` (0 .. q_len - 1) sees.
  [[nodiscard]] Columns columns(std::int64_t i) const noexcept;
  /// Indexed requests: the columns query `i` sees, in the index's order, duplicates as often as they stand.
  [[nodiscard]] std::span<const std::int32_t> picks(std::int64_t i) const noexcept;
  [[nodiscard]] std::int64_t queries() const noexcept { return request_.q_len; }

 private:
  void build_masked();
  void build_indexed(const Visibility& visible, std::int64_t first_token);

  Request request_;
  Mask mask_;
  bool indexed_ = false;
  std::int64_t size_ = 0;
  std::int64_t head_ = 0;  // masked: keys [0, head_) and, after a gap no query sees, [head_ + gap_, kv_len)
  std::int64_t gap_ = 0;
  std::vector<std::int32_t> needed_;        // indexed: positions
  std::vector<std::int32_t> picks_;         // indexed: columns, query after query
  std::vector<std::int64_t> picks_offset_;  // [q_len + 1]
};

/// One request's place in the arrays of a call.
struct BatchEntry {
  Request request;
  std::int64_t number = 0;       ///< its row in the block table
  std::int64_t first_token = 0;  ///< in q and out
  std::int64_t first_key = 0;    ///< in the caller's [sum kv_len, ...] arrays
  std::int64_t first_row = 0;    ///< in the gathered keys
  VisibleKeys visible;
};

/// A ragged batch with its visible keys.
struct Batch {
  std::vector<BatchEntry> entries;
  std::int64_t tokens = 0;          ///< sum of q_len
  std::int64_t keys = 0;            ///< sum of kv_len
  std::int64_t rows = 0;            ///< gathered keys of all requests
  std::int64_t skipped_tokens = 0;  ///< of the requests before this piece of a batch
};

/// Checks the requests, the mask and the index (kInvalidArgument) and lays them out.
[[nodiscard]] Batch make_batch(std::span<const Request> requests, const Visibility& visible);

/// The same requests as consecutive batches of at most `rows` gathered keys each (a longer request stands
/// alone), so that not all keys of a large batch need be in memory at once. first_token counts from each
/// piece's own start.
[[nodiscard]] std::vector<Batch> cut_batch(Batch batch, std::int64_t rows);

/// Query rows [begin, end) that are computed together. Row = query * group + head within the group of heads
/// that share a KV head. The cut depends on the request alone, never on its neighbours or on the number of
/// threads: a request gives the same bits alone and in any batch. Blocks of indexed requests stay within one
/// query.
struct RowBlock {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
[[nodiscard]] std::vector<RowBlock> row_blocks(const VisibleKeys& visible, int group);

}  // namespace mla::reference::detail
