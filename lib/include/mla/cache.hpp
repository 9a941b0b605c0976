// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "mla/dims.hpp"
#include "mla/dtype.hpp"
#include "mla/formats.hpp"
#include "mla/tensor.hpp"

namespace mla {

/// The byte layout of one format for given widths.
struct CacheLayout {
  CacheFormat format = CacheFormat::kBF16;
  std::int64_t latent_bytes = 0;    ///< bytes of c_kv in a row
  std::int64_t scale_offset = 0;    ///< kFp8DsMla: where the f32 scales start
  std::int64_t scale_bytes = 0;     ///< kFp8DsMla: 4 * L/128, else 0
  std::int64_t rope_offset = 0;     ///< where k_pe starts in the row (0 in its own pool for split formats)
  std::int64_t rope_bytes = 0;      ///< bytes of k_pe
  std::int64_t row_bytes = 0;       ///< of the first (or only) pool
  std::int64_t rope_row_bytes = 0;  ///< of the second pool; 0 unless split
  std::int64_t alignment = 1;       ///< each row starts at a multiple of this when packed
  DType latent_dtype = DType::kBF16;
  DType rope_dtype = DType::kBF16;

  /// Bytes a token costs in one layer, all pools together.
  [[nodiscard]] constexpr std::int64_t bytes_per_token() const noexcept { return row_bytes + rope_row_bytes; }
  [[nodiscard]] constexpr bool split() const noexcept { return rope_row_bytes > 0; }
};

/// kFp8DsMla quantises c_kv in tiles of this many channels, one f32 scale each.
inline constexpr int kFp8TileWidth = 128;
/// Bytes of one indexer key record (DeepSeek-V3.2): 128 e4m3 + one f32 scale.
inline constexpr int kIndexKeyWidth = 128;
inline constexpr int kIndexKeyBytes = kIndexKeyWidth + 4;

/// Throws kUnsupported where the format cannot hold these widths (kFp8DsMla: L must be a multiple of 128).
[[nodiscard]] MLA_EXPORT CacheLayout cache_layout(CacheFormat format, const MlaDims& dims);

/// Names on command lines and in shape texts: f64, f32, bf16, f16, bf16_split, f16_split, fp8, fp8_ds_mla.
[[nodiscard]] MLA_EXPORT std::string_view name_of(CacheFormat format) noexcept;
[[nodiscard]] MLA_EXPORT CacheFormat parse_cache_format(std::string_view text);
[[nodiscard]] MLA_EXPORT std::span<const CacheFormat> all_cache_formats() noexcept;

/// A paged latent cache as backends see it: a non-owning view; pointers are device pointers for device
/// backends. Strides are bytes and 64-bit. Rows beyond seq_lens, unused blocks and spare table columns may
/// hold anything.
struct PagedLatentCache {
  CacheFormat format = CacheFormat::kBF16;
  std::int32_t block_size = 64;         ///< tokens a block (page), any value >= 1
  std::int64_t num_blocks = 0;          ///< blocks in the pool
  std::byte* data = nullptr;            ///< [num_blocks, block_size, row_bytes]
  std::int64_t block_stride_bytes = 0;  ///< >= block_size * row_stride_bytes when packed
  std::int64_t row_stride_bytes = 0;
  std::byte* k_pe = nullptr;  ///< split formats: [num_blocks, block_size, rope_row_bytes]
  std::int64_t k_pe_block_stride_bytes = 0;
  std::int64_t k_pe_row_stride_bytes = 0;
  float scale = 1.0F;                       ///< kFp8 only: value = e4m3 * scale
  View<const std::int32_t, 2> block_table;  ///< [requests, >= ceil(kv_len / block_size)]

  /// Address of the row (c_kv or whole row) of a slot = block * block_size + offset.
  [[nodiscard]] std::byte* row(std::int64_t slot) const noexcept {
    return data + (slot / block_size) * block_stride_bytes + (slot % block_size) * row_stride_bytes;
  }
  /// Address of k_pe of a slot in split formats.
  [[nodiscard]] std::byte* k_pe_row(std::int64_t slot) const noexcept {
    return k_pe + (slot / block_size) * k_pe_block_stride_bytes + (slot % block_size) * k_pe_row_stride_bytes;
  }
  /// Slot of position p of request b through the block table.
  [[nodiscard]] std::int64_t slot(std::int64_t b, std::int64_t p) const noexcept {
    return static_cast<std::int64_t>(block_table(b, p / block_size)) * block_size + p % block_size;
  }
};

// ---- one row, encode and decode (host)
// ------------------------------------------------------------------------- Encoders round once from double.
// The e4m3 tile scale of kFp8DsMla is 2^ceil(log2(max(amax / 448, 1e-4))), a power of two (FlashMLA's
// documented rule; an all-zero tile gives 2^-13); index keys use the same rule with one tile of 128.

/// Writes [c_kv L | k_pe R] as one row. `k_pe_row` is used by split formats only; `scale` by kFp8 only.
MLA_EXPORT void encode_row(const CacheLayout& layout, const MlaDims& dims, std::span<const double> c_kv,
                           std::span<const double> k_pe, std::byte* row, std::byte* k_pe_row, float scale);

/// Reads one row to out[L + R].
MLA_EXPORT void decode_row(const CacheLayout& layout, const MlaDims& dims, const std::byte* row,
                           const std::byte* k_pe_row, float scale, std::span<double> out);

/// Indexer key record, 132 B: 128 e4m3 then one f32 scale.
MLA_EXPORT void encode_index_key(std::span<const double> key, std::byte* record);
MLA_EXPORT void decode_index_key(const std::byte* record, std::span<double> key);

/// The power-of-two tile scale above.
[[nodiscard]] MLA_EXPORT float fp8_tile_scale(double amax) noexcept;

}  // namespace mla
