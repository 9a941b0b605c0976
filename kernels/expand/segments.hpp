// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "expand/table.hpp"

/// From a segment's number to its queries and keys: constexpr, so that tests run on the host what kernels
/// run.
namespace mla::kernels::expand {

/// Positions [0, sink_end) and [begin, end), disjoint and ascending, as one list of count() keys.
struct KeyList {
  int sink_end = 0, begin = 0, end = 0;
  [[nodiscard]] constexpr int count() const { return sink_end + end - begin; }
  [[nodiscard]] constexpr int position(int i) const { return i < sink_end ? i : begin + i - sink_end; }
  /// How many of the keys stand before position p.
  [[nodiscard]] constexpr int before(int p) const {
    const int sinks = p < sink_end ? p : sink_end, rest = (p < end ? p : end) - begin;
    return (sinks > 0 ? sinks : 0) + (rest > 0 ? rest : 0);
  }
};

/// The keys that any of the S newest tokens of a sequence of N may see, as far as they belong to `part`.
[[nodiscard]] constexpr KeyList visible_keys(Part part, const MaskParams& mask, int q_len, int kv_len) {
  const int first_query = kv_len - q_len < 0 ? 0 : kv_len - q_len;
  const int unseen = first_query + 1 - mask.window;  // the window's first key, for the first query
  const int lo = unseen > 0 ? unseen : 0;
  KeyList keys{mask.sink < lo ? mask.sink : lo, lo, kv_len};
  if (q_len <= 0) return {0, 0, 0};
  if (part == Part::kNew) return {0, first_query, kv_len};
  if (part == Part::kContext) keys.end = first_query < lo ? lo : first_query;
  return keys;
}

struct Segment {
  int q_begin = 0, q_len = 0, kv_len = 0;
  std::int64_t first_row = 0;  // of the packed list
  KeyList keys;
};

/// The request that token t belongs to; `requests` if none does.
[[nodiscard]] constexpr int request_of(const SegmentTable& table, int token) {
  int low = 0, high = table.requests;
  while (low < high) {  // first request that ends after the token
    const int middle = (low + high) / 2;
    if (table.cu_seqlens_q[middle + 1] <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

[[nodiscard]] constexpr Segment segment_at(const SegmentTable& table, int s) {
  Segment segment;
  if (table.topk > 0) {
    const int request = request_of(table, s);
    const bool live = request < table.requests;
    segment.q_begin = s;
    segment.q_len = live ? 1 : 0;
    segment.kv_len = live ? table.seq_lens[request] : 0;
    segment.first_row = static_cast<std::int64_t>(s) * table.topk;
    segment.keys = {0, 0, live ? table.topk : 0};
    return segment;
  }
  segment.q_begin = table.cu_seqlens_q[s];
  segment.q_len = table.cu_seqlens_q[s + 1] - segment.q_begin;
  segment.kv_len = table.seq_lens[s];
  segment.first_row = table.cu_rows == nullptr ? 0 : table.cu_rows[s];
  segment.keys = visible_keys(table.part, table.mask, segment.q_len, segment.kv_len);
  return segment;
}

}  // namespace mla::kernels::expand
