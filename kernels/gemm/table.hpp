// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params.hpp"
#include "common/strided.hpp"
#include "expand/segments.hpp"
#include "mla/formats.hpp"

/// What the kernels around the products of cuda-gemm are told. A group is `count` consecutive segments
/// (requests, or tokens with an explicit index), each padded to `queries` queries and `keys` keys, so that
/// one batched product serves all.
namespace mla::kernels::gemm {

struct Group {
  expand::SegmentTable segments;
  std::int32_t first = 0, count = 0;
  std::int32_t queries = 0, keys = 0;
  std::int32_t heads = 1;
  DType dtype = DType::kBF16;  // of every operand below
};

/// q of the group's segments to padded rows; missing queries become 0.
struct QueryParams {
  Group group;
  const void* q = nullptr;  // [tokens, H, ..]
  std::int64_t q_token = 0, q_head = 0;
  std::int32_t nope = 0;     // channels that go to `nope_out`; 0 in latent space
  std::int32_t width = 0;    // channels of q
  void* nope_out = nullptr;  // [count, queries, H, nope]
  void* out = nullptr;  // [count, queries, H, out_width]; the channels from `nope` on go to `out_first` ..
  std::int32_t out_width = 0, out_first = 0;
};

/// Visible rows of each segment, [count, keys, L+R]; rows past the last become 0.
struct KeyParams {
  Group group;
  CacheParams cache;
  std::int64_t table_columns = 0;
  const std::int32_t* token_index = nullptr;
  std::int64_t index_row = 0, index_column = 1;
  void* rows = nullptr;
  std::uint8_t* valid = nullptr;  // [count, keys], explicit index only
  std::int32_t latent = 0, rope = 0;
  bool vector_io = false;
};

/// Scores to weights exp2((score - row maximum) scale), rounded to the operands' type, with their sums before
/// rounding.
struct SoftmaxParams {
  Group group;
  const float* scores = nullptr;  // [count, queries, H, keys]
  const std::uint8_t* valid = nullptr;
  float scale = 1.0F;       // softmax scale * cache scale * log2(e)
  void* weights = nullptr;  // as scores
  float* sums = nullptr;    // [count, queries, H]
  float* lse = nullptr;     // [tokens, H] or null
  std::int64_t lse_token = 0, lse_head = 0;
};

/// Elements of the values that are not finite, in keys that some of a segment's queries see and others do
/// not, become 0. A query that sees such a key has a score, and so a weight, that is not finite either.
struct ClearParams {
  Group group;
  void* rows = nullptr;  // [count, keys, width]
  std::int32_t latent = 0, width = 0;
};

/// What follows a product: rows divided by their sums (if there are any), scaled, to the segments' tokens (or
/// kept padded).
struct FinishParams {
  Group group;
  const void* in = nullptr;  // [count, queries, H, width]
  DType in_dtype = DType::kF32;
  const float* sums = nullptr;  // null: not divided
  float scale = 1.0F;
  std::int32_t width = 0;
  bool padded = false;  // out is [count, queries, H, width], else [tokens, H, width]
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  std::int64_t out_token = 0, out_head = 0;
};

/// What one architecture's object offers; `stream` is a cudaStream_t.
struct Table {
  void (*queries)(const QueryParams&, void* stream);
  void (*keys)(const KeyParams&, void* stream);
  void (*softmax)(const SoftmaxParams&, void* stream);
  void (*clear)(const ClearParams&, void* stream);
  void (*finish)(const FinishParams&, void* stream);
};

}  // namespace mla::kernels::gemm
