// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "mla/capacity.hpp"
#include "mla/error.hpp"

namespace mla::capacity {
namespace {

constexpr ElementFormat kF32{"f32", 4, 1};
constexpr ElementFormat kBf16{"bf16", 2, 1};
constexpr ElementFormat kF16{"f16", 2, 1};
constexpr ElementFormat kFp8{"fp8", 1, 1};
constexpr ElementFormat kInt8{"int8", 1, 1};
constexpr ElementFormat kNvfp4{"nvfp4", 9, 16};  // 8 bytes of fp4 and one e4m3 scale
constexpr ElementFormat kQ80{"q8_0", 34, 32};    // ggml: 32 elements and an f16 scale (and, q*_1, a minimum)
constexpr ElementFormat kQ60{"q6_0", 26, 32};    // ik_llama.cpp's
constexpr ElementFormat kQ51{"q5_1", 24, 32};
constexpr ElementFormat kQ50{"q5_0", 22, 32};
constexpr ElementFormat kQ41{"q4_1", 20, 32};
constexpr ElementFormat kQ40{"q4_0", 18, 32};
constexpr ElementFormat kIq4Nl{"iq4_nl", 18, 32};

constexpr KvFormat by_layout(std::string_view name, std::string_view title, ElementFormat element,
                             CacheFormat row) {
  return {.name = name,
          .title = title,
          .k = element,
          .v = element,
          .mla_row = MlaRow::kLayout,
          .row_format = row};
}
constexpr KvFormat by_elements(std::string_view title, ElementFormat element) {
  return {.name = element.name, .title = title, .k = element, .v = element};
}

constexpr std::array kFormats{
    by_layout("bf16", "bfloat16", kBf16, CacheFormat::kBF16),
    by_layout("f16", "half precision", kF16, CacheFormat::kF16),
    by_layout("f32", "single precision", kF32, CacheFormat::kF32),
    by_layout("fp8", "e4m3 or e5m2, one scale for the tensor", kFp8, CacheFormat::kFp8),
    KvFormat{.name = "fp8_ds_mla",
             .title = "e4m3 latent, one f32 scale per 128, bf16 rope: 656 B for 512 + 64",
             .k = kFp8,
             .v = kFp8,
             .mla_row = MlaRow::kLayout,
             .row_format = CacheFormat::kFp8DsMla,
             .mla_only = true},
    KvFormat{.name = "fp8_per_token_head",
             .title = "e4m3, one f32 scale per token and head",
             .k = kFp8,
             .v = kFp8,
             .scale_bytes_per_head = 4},
    KvFormat{.name = "int8_per_token_head",
             .title = "int8, one f32 scale per token and head",
             .k = kInt8,
             .v = kInt8,
             .scale_bytes_per_head = 4},
    by_elements("int8, one scale for the tensor", kInt8),
    by_elements("packed fp4, one e4m3 scale per 16", kNvfp4),
    KvFormat{.name = "nvfp4_ds_mla",
             .title = "fp4 latent, one e4m3 scale per 16, bf16 rope: 432 B for 512 + 64",
             .k = kNvfp4,
             .v = kNvfp4,
             .mla_row = MlaRow::kNvfp4DsMla,
             .mla_only = true},
    by_elements("ggml, 8.5 bits an element", kQ80),
    by_elements("ggml of ik_llama.cpp, 6.5 bits an element", kQ60),
    by_elements("ggml, 6 bits an element", kQ51),
    by_elements("ggml, 5.5 bits an element", kQ50),
    by_elements("ggml, 5 bits an element", kQ41),
    by_elements("ggml, 4.5 bits an element", kQ40),
    by_elements("ggml, 4.5 bits an element", kIq4Nl),
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kAliases{{
    {"auto", "bf16"},
    {"bfloat16", "bf16"},
    {"fp16", "f16"},
    {"float16", "f16"},
    {"half", "f16"},
    {"fp32", "f32"},
    {"float32", "f32"},
    {"fp8_e4m3", "fp8"},
    {"fp8_e5m2", "fp8"},
    {"e4m3", "fp8"},
    {"fp4", "nvfp4"},
    {"fp4_e2m1", "nvfp4"},
}};

}  // namespace

std::span<const KvFormat> all_kv_formats() noexcept {
  return kFormats;
}

KvFormat find_kv_format(std::string_view name) {
  const std::string lower = text::to_lower(name);
  std::string_view wanted = lower;
  for (const auto& [alias, target] : kAliases) {
    if (wanted == alias) wanted = target;
  }
  for (const KvFormat& format : kFormats) {
    if (format.name == wanted) return format;
  }
  std::vector<std::string> names;
  for (const KvFormat& format : kFormats) names.emplace_back(format.name);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no cache format is called {}", text::quoted(name)),
              text::suggestion(lower, names));
}

KvFormat mixed_kv_format(const KvFormat& k, const KvFormat& v) {
  if (k.name == v.name) return k;
  for (const KvFormat* format : {&k, &v}) {
    if (format->mla_only || format->scale_bytes_per_head != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("cache format {} covers K and V together and cannot be mixed with {}",
                              format->name, format == &k ? v.name : k.name));
    }
  }
  return {.name = k.name, .title = "K and V stored differently", .k = k.k, .v = v.k};
}

}  // namespace mla::capacity
