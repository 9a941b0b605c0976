// SPDX-License-Identifier: Apache-2.0
#include "visible.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "check.hpp"
#include "mla/error.hpp"

namespace mla::reference::detail {
namespace {

// Enough rows that a matrix product reuses each key it loads, few enough to feed several threads from one
// request.
constexpr std::int64_t kBlockRows = 32;
// Scores a block may hold (32 MiB of doubles): very long requests get fewer rows a block.
constexpr std::int64_t kBlockScores = std::int64_t{1} << 22;

void validate_mask(const Mask& mask) {
  if (mask.window) require_at_least("window", *mask.window, 1);
  require_at_least("sink", mask.sink, 0);
  if (mask.window && !mask.causal) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("window is {} but causal is false; a window needs a causal mask", *mask.window));
  }
  if (mask.sink > 0 && !mask.window) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("sink is {} but there is no window to keep it beside", mask.sink));
  }
}

}  // namespace

VisibleKeys::VisibleKeys(const Request& request, const Visibility& visible, std::int64_t first_token)
    : request_(request), mask_(visible.mask), indexed_(visible.topk > 0) {
  if (indexed_) {
    build_indexed(visible, first_token);
  } else {
    build_masked();
  }
}

void VisibleKeys::build_masked() {
  const std::int64_t n = request_.kv_len;
  if (request_.q_len == 0 || n == 0) return;
  if (mask_.window) {
    // The first query sees furthest back. Queries before the first key (q_len > kv_len) see nothing.
    const std::int64_t first = std::max<std::int64_t>(0, n - request_.q_len);
    const std::int64_t oldest = std::max<std::int64_t>(0, first - *mask_.window + 1);
    head_ = std::min<std::int64_t>(mask_.sink, oldest);
    gap_ = oldest - head_;
  }
  size_ = n - gap_;
}

void VisibleKeys::build_indexed(const Visibility& visible, std::int64_t first_token) {
  const auto rows = visible.token_index.subspan(static_cast<std::size_t>(first_token * visible.topk),
                                                static_cast<std::size_t>(request_.q_len) * visible.topk);
  const auto valid = [n = request_.kv_len](std::int32_t position) { return position >= 0 && position < n; };
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(needed_), valid);
  std::sort(needed_.begin(), needed_.end());
  needed_.erase(std::unique(needed_.begin(), needed_.end()), needed_.end());
  size_ = static_cast<std::int64_t>(needed_.size());
  picks_offset_.push_back(0);
  for (std::int64_t i = 0; i < request_.q_len; ++i) {
    for (const std::int32_t position :
         rows.subspan(static_cast<std::size_t>(i * visible.topk), visible.topk)) {
      if (!valid(position)) continue;
      const auto found = std::lower_bound(needed_.begin(), needed_.end(), position);
      picks_.push_back(static_cast<std::int32_t>(found - needed_.begin()));
    }
    picks_offset_.push_back(static_cast<std::int64_t>(picks_.size()));
  }
}

Columns VisibleKeys::columns(std::int64_t i) const noexcept {
  if (!mask_.causal) return {0, 0, size_};
  const std::int64_t p = request_.kv_len - request_.q_len + i;
  if (p < 0) return {};
  if (!mask_.window) return {0, 0, p + 1};
  const auto column = [&](std::int64_t position) { return position <= head_ ? position : position - gap_; };
  const std::int64_t oldest = std::max<std::int64_t>(0, p - *mask_.window + 1);
  return {column(std::min<std::int64_t>(mask_.sink, oldest)), column(oldest), column(p + 1)};
}

std::span<const std::int32_t> VisibleKeys::picks(std::int64_t i) const noexcept {
  const auto begin = static_cast<std::size_t>(picks_offset_[static_cast<std::size_t>(i)]);
  const auto end = static_cast<std::size_t>(picks_offset_[static_cast<std::size_t>(i) + 1]);
  return std::span(picks_).subspan(begin, end - begin);
}

Batch make_batch(std::span<const Request> requests, const Visibility& visible) {
  validate_mask(visible.mask);
  require_at_least("topk", visible.topk, 0);
  Batch batch;
  for (std::size_t b = 0; b < requests.size(); ++b) {
    require_at_least(fmt::format("q_len of request {}", b), requests[b].q_len, 0);
    require_at_least(fmt::format("kv_len of request {}", b), requests[b].kv_len, 0);
    batch.tokens += requests[b].q_len;
  }
  require_size("token_index", visible.token_index.size(), "[tokens, topk]",
               {visible.topk > 0 ? batch.tokens : 0, visible.topk});
  std::int64_t first_token = 0;
  batch.entries.reserve(requests.size());
  for (const Request& request : requests) {
    const auto number = static_cast<std::int64_t>(batch.entries.size());
    batch.entries.push_back(
        {request, number, first_token, batch.keys, batch.rows, VisibleKeys(request, visible, first_token)});
    first_token += request.q_len;
    batch.keys += request.kv_len;
    batch.rows += batch.entries.back().visible.size();
  }
  return batch;
}

std::vector<Batch> cut_batch(Batch batch, std::int64_t rows) {
  std::vector<Batch> pieces(1);
  std::int64_t tokens = 0;
  for (BatchEntry& entry : batch.entries) {
    if (pieces.back().rows > 0 && pieces.back().rows + entry.visible.size() > rows) {
      pieces.emplace_back();
      pieces.back().skipped_tokens = tokens;
    }
    Batch& piece = pieces.back();
    entry.first_token = piece.tokens;
    entry.first_key = piece.keys;
    entry.first_row = piece.rows;
    piece.tokens += entry.request.q_len;
    piece.keys += entry.request.kv_len;
    piece.rows += entry.visible.size();
    tokens += entry.request.q_len;
    piece.entries.push_back(std::move(entry));
  }
  return pieces;
}

std::vector<RowBlock> row_blocks(const VisibleKeys& visible, int group) {
  const std::int64_t fitting = kBlockScores / std::max<std::int64_t>(1, visible.size());
  const std::int64_t height = std::clamp<std::int64_t>(fitting, 1, kBlockRows);
  const std::int64_t rows = visible.queries() * group;
  const std::int64_t run = visible.indexed() ? group : rows;  // rows that may share a block
  std::vector<RowBlock> blocks;
  for (std::int64_t start = 0; start < rows; start += run) {
    for (std::int64_t row = start; row < start + run; row += height) {
      blocks.push_back({row, std::min(row + height, start + run)});
    }
  }
  return blocks;
}

}  // namespace mla::reference::detail
