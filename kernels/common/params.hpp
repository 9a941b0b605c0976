// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/fast_divide.hpp"
#include "mla/formats.hpp"

/// What kernels take by value: plain data made once on the host from a shape and its arguments
/// (common/arguments.hpp). nvcc reads this header four times a file: it includes as little as it can.
namespace mla::kernels {

/// The paged cache. A format without a rope pool of its own has `rope` point into the row, with the row's
/// strides.
struct CacheParams {
  CacheFormat format = CacheFormat::kBF16;
  std::int32_t block_size = 1;
  FastDivide by_block_size;
  std::int64_t num_blocks = 0;
  const std::byte* latent = nullptr;     // [num_blocks, block_size] rows of L elements (and scales)
  std::int64_t latent_block_stride = 0;  // bytes, as all strides here
  std::int64_t latent_row_stride = 0;
  const std::byte* rope = nullptr;  // [num_blocks, block_size] rows of R elements
  std::int64_t rope_block_stride = 0;
  std::int64_t rope_row_stride = 0;
  std::int32_t scale_offset = 0;              // kFp8DsMla: where the f32 scales start in a row
  float scale = 1.0F;                         // kFp8
  const std::int32_t* block_table = nullptr;  // [requests, columns]
  std::int64_t table_stride_request = 0;      // elements
  std::int64_t table_stride_column = 0;
};

/// A tensor [tokens, heads, width] with strides in elements.
struct TensorParams {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t stride_token = 0;
  std::int64_t stride_head = 0;
  std::int64_t stride_channel = 1;
};

/// One attention call. Letters as in mla/dims.hpp.
struct AttentionParams {
  std::int32_t num_heads = 1, latent = 1, rope = 0, nope = 1, value = 1;
  std::int64_t num_tokens = 0;  // rows of q and out; those past cu_seqlens_q[num_requests] are empty rows
  std::int32_t num_requests = 0;
  bool head_space = false;  // q is [tokens, H, P+R] and out [tokens, H, V]; else [.., L+R] and [.., L]
  TensorParams q, out;
  TensorParams w_uk, w_uv;  // head space: [H, P, L] and [H, V, L] as (head, row, channel) strides
  float* lse = nullptr;     // [tokens, H] or null
  std::int64_t lse_stride_token = 0, lse_stride_head = 0;
  CacheParams cache;
  const std::int32_t* cu_seqlens_q = nullptr;  // [requests + 1]
  std::int64_t cu_seqlens_stride = 1;
  const std::int32_t* seq_lens = nullptr;  // [requests]
  std::int64_t seq_lens_stride = 1;
  const std::int32_t* token_index = nullptr;  // [tokens, topk] if topk > 0
  std::int64_t index_stride_token = 0, index_stride_entry = 1;
  std::int32_t topk = 0;
  bool causal = true;
  std::int32_t window = 0;  // 0: none
  std::int32_t sink = 0;
  float scale = 1.0F;  // softmax scale
};

}  // namespace mla::kernels
