// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params.hpp"
#include "common/strided.hpp"
#include "mla/formats.hpp"

/// What the cache kernels are told. Element types are a run-time switch, uniform over the grid: 21
/// combinations of input type and format are not worth a kernel each when the bytes moved are the bound.
namespace mla::kernels::cache_ops {

/// Element types of the two parts of a row.
[[nodiscard]] constexpr DType latent_dtype(CacheFormat format) {
  switch (format) {
    case CacheFormat::kF32:
      return DType::kF32;
    case CacheFormat::kF16:
    case CacheFormat::kF16Split:
      return DType::kF16;
    case CacheFormat::kFp8:
    case CacheFormat::kFp8DsMla:
      return DType::kE4M3;
    default:
      return DType::kBF16;
  }
}
[[nodiscard]] constexpr DType rope_dtype(CacheFormat format) {
  return format == CacheFormat::kFp8DsMla ? DType::kBF16 : latent_dtype(format);
}

/// A matrix whose rows are contiguous.
struct Rows {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t stride = 0;  // elements
};

struct RotationParams {
  const float* cos = nullptr;  // null: no rotation
  const float* sin = nullptr;
  std::int64_t cos_stride = 0, sin_stride = 0;
  Strided<const std::int64_t> positions;
  bool interleaved_input = true, interleaved_output = true;  // else [first halves | second halves]
};

struct WriteParams {
  Rows c_kv, k_pe, bias, norm_weight;  // bias [L+R] is added to [c_kv | k_pe] first, as one f32 addition
  float norm_eps = 0;
  RotationParams rotation;
  DType intermediate = DType::kF32;
  Strided<const std::int64_t> slot_mapping;
  std::int64_t tokens = 0;
  std::int32_t latent = 0, rope = 0;
  bool vector_in = false, vector_out = false;  // rows may be moved in pieces of eight channels
  bool vector_weight = false;
  float inverse_scale = 0;  // of the cache's scale, for divide_for_e4m3
  CacheParams cache;
};

struct NormParams {
  Rows x, weight;
  float eps = 0;
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  std::int64_t out_stride = 0;
  std::int64_t rows = 0;
  std::int32_t width = 0;
  bool vector_in = false;
};

struct RotateParams {
  void* x = nullptr;  // first rotated channel of token 0, head 0
  DType dtype = DType::kF32;
  std::int64_t token_stride = 0, head_stride = 0, tokens = 0;
  std::int32_t heads = 0, rope = 0;
  RotationParams rotation;
};

/// Where row r of the dense array comes from: request by cu_seqlens_k, position from `first` on.
struct PagedRows {
  Strided<const std::int32_t> cu_seqlens_k, first;
  std::int64_t table_columns = 0;
  std::int32_t requests = 0;
};

struct GatherParams {
  PagedRows source;
  CacheParams cache;
  void* rows = nullptr;  // [capacity, latent + rope]
  DType dtype = DType::kBF16;
  std::int64_t row_stride = 0, capacity = 0;
  std::int32_t latent = 0, rope = 0;
  bool vector_io = false;
};

/// Channels [first, first + width) of a tensor [tokens, heads, ..].
struct ChannelsSide {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t token_stride = 0, head_stride = 0;
  std::int64_t first = 0;
};
/// Copies channels, converting where the types differ.
struct ChannelsParams {
  ChannelsSide from, to;
  std::int64_t tokens = 0;
  std::int32_t heads = 1, width = 0;
};

/// One pool of a block copy; a workspace is a pool whose block ids are the pair's number.
struct BlockSide {
  std::byte* data = nullptr;
  std::int64_t block_stride = 0, row_stride = 0;
  bool by_pair = false;  // blocks are numbered by pair: a workspace
};
struct CopyParams {
  BlockSide from, to;
  const std::int64_t* pairs = nullptr;
  std::int64_t pair_row = 2, pair_column = 1, count = 0;
  std::int64_t from_blocks = 0,
               to_blocks = 0;  // pairs with ids outside are skipped, in both passes of a permutation
  std::int64_t row_bytes = 0;
  std::int32_t block_size = 1;
  std::int32_t unit = 1;  // bytes a thread moves at once: 16, 4 or 1
};

/// What one architecture's object offers; `stream` is a cudaStream_t.
struct Table {
  void (*write)(const WriteParams&, void* stream);
  void (*norm)(const NormParams&, void* stream);
  void (*rotate)(const RotateParams&, void* stream);
  void (*gather)(const GatherParams&, void* stream);
  void (*copy)(const CopyParams&, void* stream);
  void (*channels)(const ChannelsParams&, void* stream);
};

/// That of the current device. Throws kUnsupported or kDevice where there is none.
[[nodiscard]] const Table& table();

}  // namespace mla::kernels::cache_ops
