// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "mla/cache.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

constexpr double kE4M3Largest = 448.0;
constexpr double kSmallestScale = 1e-4;

void require_size(std::string_view what, std::size_t got, int want) {
  if (got != static_cast<std::size_t>(want)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} elements, but must have {}", what, got, want));
  }
}

/// A layout made for other widths would write past the row.
void require_widths(const CacheLayout& layout, const MlaDims& dims) {
  if (layout.latent_bytes != dims.kv_lora_rank * static_cast<std::int64_t>(size_of(layout.latent_dtype)) ||
      layout.rope_bytes != dims.qk_rope_head_dim * static_cast<std::int64_t>(size_of(layout.rope_dtype))) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "the layout has {} bytes of c_kv and {} of k_pe as {}, which do not belong to kv_lora_rank {} "
            "and qk_rope_head_dim {}",
            layout.latent_bytes, layout.rope_bytes, name_of(layout.format), dims.kv_lora_rank,
            dims.qk_rope_head_dim));
  }
}

/// The address of k_pe, which split formats keep in a pool of its own.
template <class Byte>
Byte* rope_address(const CacheLayout& layout, Byte* row, Byte* k_pe_row) {
  if (!layout.split()) return row + layout.rope_offset;
  if (k_pe_row == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cache format {} keeps k_pe in a second pool, but k_pe_row is null",
                            name_of(layout.format)));
  }
  return k_pe_row;
}

/// The scale of a plain format: the tensor's for kFp8, none elsewhere.
double tensor_scale(const CacheLayout& layout, float scale) {
  if (layout.format != CacheFormat::kFp8) return 1.0;
  if (!(scale > 0.0F) || !std::isfinite(scale)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the fp8 cache scale is {}, but must be finite and > 0", scale));
  }
  return scale;
}

void store_scaled(std::span<const double> values, DType dtype, double scale, std::byte* to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(to, dtype, static_cast<std::int64_t>(i), values[i] / scale);
  }
}

void load_scaled(const std::byte* from, DType dtype, double scale, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(from, dtype, static_cast<std::int64_t>(i)) * scale;
  }
}

/// Quantises tiles of `tile` e4m3 values, one f32 scale each.
void encode_tiles(std::span<const double> values, std::size_t tile, std::byte* to, std::byte* scales) {
  for (std::size_t t = 0; t * tile < values.size(); ++t) {
    const auto part = values.subspan(t * tile, tile);
    double amax = 0;
    for (const double x : part) {
      if (std::isnan(x) || std::abs(x) > amax) amax = std::abs(x);
      if (std::isnan(amax)) break;  // a tile with a NaN has a NaN scale: loud, as a vector maximum makes it
    }
    const float scale = fp8_tile_scale(amax);
    store_element(scales, DType::kF32, static_cast<std::int64_t>(t), scale);
    store_scaled(part, DType::kE4M3, scale, to + t * tile);
  }
}

void decode_tiles(const std::byte* from, const std::byte* scales, std::size_t tile,
                  std::span<double> values) {
  for (std::size_t t = 0; t * tile < values.size(); ++t) {
    const double scale = load_element(scales, DType::kF32, static_cast<std::int64_t>(t));
    load_scaled(from + t * tile, DType::kE4M3, scale, values.subspan(t * tile, tile));
  }
}

}  // namespace

float fp8_tile_scale(double amax) noexcept {
  if (!std::isfinite(amax)) return static_cast<float>(amax);
  int exponent = 0;
  const double mantissa =
      std::frexp(std::max(amax / kE4M3Largest, kSmallestScale), &exponent);  // in [0.5, 1)
  if (mantissa == 0.5) --exponent;                                           // a power of two already
  return static_cast<float>(std::ldexp(1.0, exponent));
}

void encode_row(const CacheLayout& layout, const MlaDims& dims, std::span<const double> c_kv,
                std::span<const double> k_pe, std::byte* row, std::byte* k_pe_row, float scale) {
  require_widths(layout, dims);
  require_size("c_kv", c_kv.size(), dims.kv_lora_rank);
  require_size("k_pe", k_pe.size(), dims.qk_rope_head_dim);
  std::byte* const rope = rope_address(layout, row, k_pe_row);
  const double divisor = tensor_scale(layout, scale);
  if (layout.scale_bytes > 0) {
    encode_tiles(c_kv, kFp8TileWidth, row, row + layout.scale_offset);
  } else {
    store_scaled(c_kv, layout.latent_dtype, divisor, row);
  }
  store_scaled(k_pe, layout.rope_dtype, divisor, rope);
}

void decode_row(const CacheLayout& layout, const MlaDims& dims, const std::byte* row,
                const std::byte* k_pe_row, float scale, std::span<double> out) {
  require_widths(layout, dims);
  require_size("out", out.size(), dims.latent_width());
  const auto c_kv = out.first(static_cast<std::size_t>(dims.kv_lora_rank));
  const auto k_pe = out.last(static_cast<std::size_t>(dims.qk_rope_head_dim));
  const std::byte* const rope = rope_address(layout, row, k_pe_row);
  const double factor = tensor_scale(layout, scale);
  if (layout.scale_bytes > 0) {
    decode_tiles(row, row + layout.scale_offset, kFp8TileWidth, c_kv);
  } else {
    load_scaled(row, layout.latent_dtype, factor, c_kv);
  }
  load_scaled(rope, layout.rope_dtype, factor, k_pe);
}

void encode_index_key(std::span<const double> key, std::byte* record) {
  require_size("an indexer key", key.size(), kIndexKeyWidth);
  encode_tiles(key, kIndexKeyWidth, record, record + kIndexKeyWidth);
}

void decode_index_key(const std::byte* record, std::span<double> key) {
  require_size("an indexer key", key.size(), kIndexKeyWidth);
  decode_tiles(record, record + kIndexKeyWidth, kIndexKeyWidth, key);
}

}  // namespace mla
