// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "mla/capacity.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

/// name, bits a weight, bits of a scale (and zero point), rows x cols of a block (0: the whole extent), files.
const std::vector<WeightFormat>& formats() {
  using enum WeightFiles;
  static const std::vector<WeightFormat> all = {
      {"bf16", 16, 0, 0, 0},
      {"f16", 16, 0, 0, 0},
      {"f32", 32, 0, 0, 0},
      {"fp8", 8, 32, 128, 128, kSafetensors},           // DeepSeek: one f32 scale a 128 x 128 block
      {"fp8_channel", 8, 32, 1, 0, kSafetensors},       // one f32 scale a row
      {"fp8_tensor", 8, 32, 0, 0, kSafetensors},        //
      {"mxfp8", 8, 8, 1, 32, kSafetensors},             // one e8m0 scale per 32
      {"int8", 8, 32, 1, 0, kSafetensors},              // one f32 scale a row
      {"int4", 4, 16 + 4, 1, 128, kSafetensors},        // AWQ: f16 scale and 4-bit zero per 128
      {"int4_symmetric", 4, 16, 1, 128, kSafetensors},  // GPTQ without zero points
      {"mxfp4", 4, 8, 1, 32},                           // one e8m0 scale per 32
      {"nvfp4", 4, 8, 1, 16, kSafetensors},             // one e4m3 scale per 16
      // ggml's blocks: 32 weights with an f16 scale (*_1: and an f16 minimum) ...
      {"q8_0", 8, 16, 1, 32, kGguf},    // 34 B
      {"q5_1", 5, 32, 1, 32, kGguf},    // 24 B
      {"q5_0", 5, 16, 1, 32, kGguf},    // 22 B
      {"q4_1", 4, 32, 1, 32, kGguf},    // 20 B
      {"q4_0", 4, 16, 1, 32, kGguf},    // 18 B
      {"iq4_nl", 4, 16, 1, 32, kGguf},  // 18 B
      // ... and 256 weights with two levels of scales.
      {"q6_k", 6, 144, 1, 256, kGguf},   // 210 B
      {"q5_k", 5, 128, 1, 256, kGguf},   // 176 B
      {"q4_k", 4, 128, 1, 256, kGguf},   // 144 B
      {"q3_k", 3, 112, 1, 256, kGguf},   // 110 B
      {"q2_k", 2, 160, 1, 256, kGguf},   // 84 B
      {"iq4_xs", 4, 64, 1, 256, kGguf},  // 136 B
      // Mixes: the quantiser stores half of the down matrices in q6_k, so a mean FFN weight takes a sixth of the
      // difference more: 4.5 + (6.5625 - 4.5) / 6 bits, 5.5 + (6.5625 - 5.5) / 6.
      {"q4_k_m", 4, 128 + 88, 1, 256, kGguf},
      {"q5_k_m", 5, 128 + 45, 1, 256, kGguf},
  };
  return all;
}

/// The plain format of a GGUF mix, which all but its FFNs are stored in.
WeightFormat plain_of(const WeightFormat& format) {
  return format.name.ends_with("_m") ? find_weight_format(format.name.substr(0, format.name.size() - 2))
                                     : format;
}

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"bfloat16", "bf16"}, {"fp16", "f16"},    {"float16", "f16"},
    {"float32", "f32"},   {"fp32", "f32"},    {"fp8_block", "fp8"},
    {"awq", "int4"},      {"w4a16", "int4"},  {"gptq", "int4_symmetric"},
    {"fp4", "mxfp4"},     {"w8a8", "int8"},   {"fp8_e4m3", "fp8_tensor"},
    {"q4_k_s", "q4_k"},   {"q5_k_s", "q5_k"},
};

/// "fp8 128x128": what quantization_config says, as a format.
WeightFormat format_of(const QuantizationConfig& config, const std::string& name) {
  WeightFormat format{.name = name.empty() ? config.method : name,
                      .bits = static_cast<int>(std::lround(config.weight_bits)),
                      .scale_bits = config.scale_bits,
                      .files = name == "mxfp4" ? WeightFiles::kAny : WeightFiles::kSafetensors};
  if (!config.expert_format.empty() && name == config.expert_format && name != config.format) {
    return find_weight_format(name);
  }
  if (config.block_n > 0) {
    format.block_rows = config.block_n;
    format.block_cols = config.block_k;
  } else if (config.group_size > 0) {
    format.block_rows = 1;
    format.block_cols = config.group_size;
  } else {
    format.block_rows = 1;  // a scale a row: at most a few bytes more than one a tensor
  }
  if (config.zero_points) format.scale_bits += format.bits;
  return format;
}

/// What configs call the dtypes that weights are counted in; nothing said is bf16.
bool is_known_dtype(std::string_view dtype) {
  if (dtype.starts_with("torch.")) dtype.remove_prefix(6);
  constexpr std::string_view kKnown[] = {"", "auto", "bfloat16", "float16", "half", "float32", "float"};
  return std::ranges::find(kKnown, dtype) != std::end(kKnown);
}

}  // namespace

std::span<const WeightFormat> all_weight_formats() {
  return formats();
}

WeightFormat find_weight_format(std::string_view name) {
  const std::string lower = text::to_lower(name);
  std::string_view wanted = lower;
  for (const auto& [alias, target] : kAliases) {
    if (wanted == alias) wanted = target;
  }
  std::vector<std::string> names;
  for (const WeightFormat& format : formats()) {
    if (format.name == wanted) return format;
    names.push_back(format.name);
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no weight format is called {}", text::quoted(name)),
              text::suggestion(lower, names));
}

std::int64_t matrix_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols) {
  if (rows == 0 || cols == 0) return 0;
  const std::int64_t weights = ceil_div(times(times(rows, cols), format.bits), 8);
  if (format.scale_bits == 0) return weights;
  const std::int64_t row_blocks = format.block_rows > 0 ? ceil_div(rows, format.block_rows) : 1;
  const std::int64_t col_blocks = format.block_cols > 0 ? ceil_div(cols, format.block_cols) : 1;
  return plus(weights, ceil_div(times(times(row_blocks, col_blocks), format.scale_bits), 8));
}

WeightScheme uniform_scheme(const WeightFormat& format) {
  WeightScheme scheme;
  scheme.attention = scheme.dense = scheme.shared = scheme.experts = format;
  if (format.files == WeightFiles::kGguf) {
    const WeightFormat plain = plain_of(format);
    const bool k_quant = format.block_cols > 32;
    scheme.attention = scheme.embedding = plain;
    scheme.head = k_quant ? find_weight_format("q6_k") : plain;
    scheme.router = find_weight_format("f32");
    scheme.source =
        fmt::format("GGUF {}: embeddings {}, head {}, gates f32", format.name, plain.name, scheme.head.name);
    return scheme;
  }
  scheme.source = format.name + " for attention and FFN matrices, bf16 for embeddings, head and gates";
  return scheme;
}

WeightScheme scheme_of(const ModelConfig& model) {
  WeightScheme scheme;
  if (!model.quantization_config) {
    if (!model.torch_dtype.empty())
      scheme.source = fmt::format("torch_dtype {} of the config", model.torch_dtype);
    if (!is_known_dtype(model.torch_dtype)) {
      scheme.doubts.push_back(
          fmt::format("torch_dtype {} is not known (allowed are bfloat16, float16 and float32): weights are "
                      "counted as bf16; --weights says what they are",
                      text::quoted(model.torch_dtype)));
    }
    if (model.torch_dtype == "float32" || model.torch_dtype == "float") {
      const WeightFormat f32 = find_weight_format("f32");
      scheme.attention = scheme.dense = scheme.shared = scheme.experts = scheme.head = scheme.router =
          scheme.embedding = f32;
    }
    return scheme;
  }
  const QuantizationConfig& config = *model.quantization_config;
  constexpr double kPlainBits = 16;
  if (config.format.empty() || config.weight_bits >= kPlainBits) {
    scheme.doubts.push_back(fmt::format(
        "quantization {} cannot be read (known are fp8, fbgemm_fp8, awq, gptq, mxfp4, "
        "bitsandbytes, compressed-tensors and modelopt): weights are counted as bf16; --weights says "
        "what they are",
        text::quoted(config.format.empty() ? config.method : config.format)));
    scheme.source = "bf16, as the config's quantization is not known";
    return scheme;
  }
  scheme.source = fmt::format("quantization_config of the config: {}", model.quantization);
  const WeightFormat common = format_of(config, config.format);
  const WeightFormat expert = config.expert_format.empty() ? common : format_of(config, config.expert_format);
  const std::string layer = fmt::format("model.layers.{}.", model.num_layers - 1);
  if (config.covers(layer + "mlp.experts.0.down_proj")) scheme.experts = expert;
  if (config.experts_only) return scheme;
  if (config.covers(layer + "self_attn.o_proj")) scheme.attention = common;
  if (config.covers(layer + "mlp.shared_experts.down_proj")) scheme.shared = common;
  if (config.covers((model.moe ? std::string("model.layers.0.") : layer) + "mlp.down_proj"))
    scheme.dense = common;
  return scheme;
}

}  // namespace mla::capacity
