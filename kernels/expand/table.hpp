// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params.hpp"
#include "common/strided.hpp"
#include "mla/formats.hpp"

namespace mla::kernels::expand {

/// Which keys of a request a pass looks at: all of them, those of the new tokens, or those before.
enum class Part : std::int32_t { kAll, kNew, kContext };

inline constexpr std::int32_t kNoWindow = 1 << 30;  // longer than any sequence, and p - kNoWindow fits an int

struct MaskParams {
  std::int32_t causal = 1;
  std::int32_t window = kNoWindow;
  std::int32_t sink = 0;
};

/// The keys of a batch as one packed list of dense rows, segment after segment. A segment is a request (mask)
/// or a token (explicit index: its topk entries). Only keys that some query of the segment can see are in the
/// list.
struct SegmentTable {
  Strided<const std::int32_t> cu_seqlens_q;  // [requests + 1]
  Strided<const std::int32_t> seq_lens;      // [requests]
  const std::int32_t* cu_rows = nullptr;  // [count + 1], made on the device; null where rows are not packed
  std::int32_t requests = 0;
  std::int32_t count = 0;  // segments: requests, or tokens with an explicit index
  std::int32_t topk = 0;   // > 0: explicit index
  Part part = Part::kAll;
  MaskParams mask;
};

/// Packed offsets of the segments of a table, made on the device: one block, lengths may change between
/// replays.
struct OffsetsParams {
  SegmentTable segments;
  std::int32_t* cu_rows = nullptr;  // [count + 1]
};

/// Dense rows [chunk_begin, chunk_begin + chunk_rows) of the packed list, from the paged cache. Rows of fp8
/// pools come as their bare codes where cache.scale is 1.
struct RowsParams {
  SegmentTable segments;
  CacheParams cache;
  std::int64_t table_columns = 0;
  const std::int32_t* token_index = nullptr;  // [tokens, topk], explicit index only
  std::int64_t index_row = 0, index_column = 1;
  void* rows = nullptr;  // [chunk_rows, latent + rope]
  DType dtype = DType::kBF16;
  std::uint8_t* valid = nullptr;  // [chunk_rows], explicit index only
  std::int64_t chunk_begin = 0;
  std::int32_t chunk_rows = 0;
  std::int32_t latent = 0, rope = 0;
  bool vector_io = false;
};

/// Merge of `parts` partial results of the same rows. Parts lie `part_stride` elements apart, their LSEs
/// `lse_part` apart.
struct MergeParams {
  const void* parts = nullptr;  // [parts, tokens, heads, width]
  DType dtype = DType::kF32;
  std::int64_t part_stride = 0, part_row = 0;  // row = token * heads + head
  const float* part_lse = nullptr;             // [parts, rows]
  std::int64_t lse_part = 0, lse_row = 1;
  std::int32_t count = 0;
  std::int64_t tokens = 0;
  std::int32_t heads = 1, width = 0;
  void* out = nullptr;  // [tokens, heads, width]; may be the first part
  DType out_dtype = DType::kF32;
  std::int64_t out_token = 0, out_head = 0;
  float* lse = nullptr;  // [tokens, heads] or null; may be the first part's
  std::int64_t lse_token = 0, lse_head = 0;
};

/// Rows of the output that belong to no request: 0 and -inf.
struct TailParams {
  Strided<const std::int32_t> cu_seqlens_q;
  std::int32_t requests = 0;
  std::int64_t tokens = 0;
  std::int32_t heads = 1, width = 0;
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  std::int64_t out_token = 0, out_head = 0;
  float* lse = nullptr;
  std::int64_t lse_token = 0, lse_head = 0;
};

/// One attention pass over `chunk_rows` dense rows, those from `chunk_begin` of the packed list.
struct AttendParams {
  SegmentTable segments;
  const void* q = nullptr;  // [tokens, H, P+R]
  std::int64_t q_token = 0, q_head = 0;
  const void* k_nope = nullptr;  // [chunk_rows, H, P]
  const void* k_pe = nullptr;    // [chunk_rows, R] inside rows of k_pe_row elements
  std::int64_t k_pe_row = 0;
  const void* v = nullptr;              // [chunk_rows, H, V]
  const std::uint8_t* valid = nullptr;  // [chunk_rows], explicit index only: 0 marks a skipped entry
  std::int32_t heads = 1, nope = 0, rope = 0, v_dim = 0;
  std::int64_t chunk_begin = 0;
  std::int32_t chunk_rows = 0;
  std::int32_t tokens = 0;
  std::int32_t tiles = 1;       // query tiles a segment may have
  std::int32_t splits = 1;      // parts of a segment's keys in this chunk
  std::int32_t split_keys = 0;  // keys a part, a multiple of the key tile
  float score_scale = 0;        // softmax scale * cache scale * log2(e)
  float value_scale = 1;        // cache scale
  // either the result ...
  void* out = nullptr;  // [tokens, H, V]; null: partials
  std::int64_t out_token = 0, out_head = 0;
  std::int32_t out_f32 = 0;  // f32, else the type of q
  float* lse = nullptr;      // [tokens, H]; may be null
  std::int64_t lse_token = 0, lse_head = 0;
  // ... or one slot for each split
  float* partial = nullptr;      // [splits, tokens, H, V]
  float* partial_lse = nullptr;  // [splits, tokens, H]
};

/// Widths of q.k and of v that the attention kernel is compiled for; narrower heads are padded with zeros.
enum class Widths : std::int32_t { k96x64, k128x128, k192x128, k256x256 };

/// A block's queries and keys, and the shared memory it takes.
struct Tile {
  std::int32_t queries = 0, keys = 0;
  std::size_t shared_bytes = 0;
};

/// How the kernel is picked: many queries a tile, or the few of a decode step.
struct Variant {
  Widths widths = Widths::k192x128;
  DType dtype = DType::kBF16;
  bool few_queries = false;
};

/// What one architecture's object offers; `stream` is a cudaStream_t.
struct Table {
  void (*offsets)(const OffsetsParams&, void* stream);
  void (*rows)(const RowsParams&, void* stream);
  void (*attend)(const AttendParams&, const Variant&, void* stream);
  void (*merge)(const MergeParams&, void* stream);
  void (*tail)(const TailParams&, void* stream);
  void (*fill)(float* data, std::int64_t count, float value, void* stream);
  Tile (*tile)(const Variant&);
};

}  // namespace mla::kernels::expand
