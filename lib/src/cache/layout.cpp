// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "mla/cache.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

/// Where the formats differ; all sizes and offsets follow from these facts and the widths.
struct FormatFacts {
  CacheFormat format;
  std::string_view name;
  DType latent;
  DType rope;
  bool split;
  bool tile_scales;
};
constexpr FormatFacts kFacts[] = {
    {CacheFormat::kF64, "f64", DType::kF64, DType::kF64, false, false},
    {CacheFormat::kF32, "f32", DType::kF32, DType::kF32, false, false},
    {CacheFormat::kBF16, "bf16", DType::kBF16, DType::kBF16, false, false},
    {CacheFormat::kF16, "f16", DType::kF16, DType::kF16, false, false},
    {CacheFormat::kBF16Split, "bf16_split", DType::kBF16, DType::kBF16, true, false},
    {CacheFormat::kF16Split, "f16_split", DType::kF16, DType::kF16, true, false},
    {CacheFormat::kFp8, "fp8", DType::kE4M3, DType::kE4M3, false, false},
    {CacheFormat::kFp8DsMla, "fp8_ds_mla", DType::kE4M3, DType::kBF16, false, true},
};

constexpr auto kFormats = [] {
  std::array<CacheFormat, std::size(kFacts)> formats{};
  std::transform(std::begin(kFacts), std::end(kFacts), formats.begin(),
                 [](const auto& f) { return f.format; });
  return formats;
}();

const FormatFacts& facts_of(CacheFormat format) {
  const auto it =
      std::find_if(std::begin(kFacts), std::end(kFacts), [&](const auto& f) { return f.format == format; });
  if (it == std::end(kFacts)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cache format number {} does not exist", static_cast<int>(format)));
  }
  return *it;
}

/// Largest power of two that divides both sizes, up to what every device allocator aligns a pool to.
std::int64_t common_alignment(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kPoolAlignment = 256;
  return std::int64_t{1} << std::countr_zero(static_cast<std::uint64_t>(a | b | kPoolAlignment));
}

}  // namespace

CacheLayout cache_layout(CacheFormat format, const MlaDims& dims) {
  validate(dims);
  const FormatFacts& facts = facts_of(format);
  if (facts.tile_scales && dims.kv_lora_rank % kFp8TileWidth != 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("cache format {} quantises in tiles of {} channels, but kv_lora_rank is {}",
                            facts.name, kFp8TileWidth, dims.kv_lora_rank),
                "use bf16 or fp8 for such a model");
  }
  CacheLayout layout;
  layout.format = format;
  layout.latent_dtype = facts.latent;
  layout.rope_dtype = facts.rope;
  layout.latent_bytes = dims.kv_lora_rank * static_cast<std::int64_t>(size_of(facts.latent));
  layout.rope_bytes = dims.qk_rope_head_dim * static_cast<std::int64_t>(size_of(facts.rope));
  if (facts.tile_scales) {
    layout.scale_offset = layout.latent_bytes;
    layout.scale_bytes = dims.kv_lora_rank / kFp8TileWidth * static_cast<std::int64_t>(sizeof(float));
  }
  layout.row_bytes = layout.latent_bytes + layout.scale_bytes;
  if (facts.split) {
    layout.rope_row_bytes = layout.rope_bytes;
  } else {
    layout.rope_offset = layout.row_bytes;
    layout.row_bytes += layout.rope_bytes;
  }
  layout.alignment = common_alignment(layout.row_bytes, layout.rope_row_bytes);
  return layout;
}

std::string_view name_of(CacheFormat format) noexcept {
  for (const FormatFacts& facts : kFacts) {
    if (facts.format == format) return facts.name;
  }
  return "?";
}

CacheFormat parse_cache_format(std::string_view text) {
  std::vector<std::string> names;
  for (const FormatFacts& facts : kFacts) {
    if (facts.name == text) return facts.format;
    names.emplace_back(facts.name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is not a cache format; allowed: {}", text::quoted(text), text::join_or(names)),
              text::suggestion(text, names));
}

std::span<const CacheFormat> all_cache_formats() noexcept {
  return kFormats;
}

}  // namespace mla
