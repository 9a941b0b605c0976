// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/text.hpp"
#include "model/reading.hpp"

namespace mla {
namespace {

constexpr Range kGroup{-1, 1 << 20};  // -1: a scale a row

std::string lower(const std::optional<std::string>& word) {
  return text::to_lower(word.value_or(""));
}

// Bits, scales and groups of a format's published layout, where the file does not say otherwise.
void set_format(QuantizationConfig& config, std::string format) {
  struct Layout {
    const char* format;
    double bits;
    int group, scale_bits;
  };
  static constexpr Layout kLayouts[] = {{"nvfp4", 4, 16, 8}, {"mxfp4", 4, 32, 8}, {"mxfp8", 8, 32, 8},
                                        {"fp8", 8, 0, 32},   {"int8", 8, 0, 32},  {"int4", 4, 128, 16}};
  for (const Layout& layout : kLayouts) {
    if (format != layout.format) continue;
    config.weight_bits = layout.bits;
    config.scale_bits = layout.scale_bits;
    if (config.group_size == 0) config.group_size = layout.group;
  }
  config.format = std::move(format);
}

// modelopt's algorithm names.
std::string format_of_algorithm(const std::string& algorithm) {
  if (algorithm.find("nvfp4") != std::string::npos) return "nvfp4";
  if (algorithm.find("mxfp8") != std::string::npos) return "mxfp8";
  if (algorithm.find("mxfp4") != std::string::npos) return "mxfp4";
  if (algorithm.find("fp8") != std::string::npos) return "fp8";
  if (algorithm.find("w4a16") != std::string::npos || algorithm.find("int4") != std::string::npos)
    return "int4";
  return algorithm.find("int8") != std::string::npos ? "int8" : "";
}

void read_group_size(const Fields& fields, QuantizationConfig& config) {
  if (const auto size = fields.integer("quantization group_size", {"group_size"}, kGroup)) {
    config.group_size = static_cast<int>(std::max<std::int64_t>(*size, 0));
  }
}

void read_fp8(const Reading& reading, const Fields& fields, QuantizationConfig& config) {
  set_format(config, "fp8");
  const std::vector<std::int64_t> block = fields.integers("weight_block_size", {1, 1 << 20});
  if (!block.empty() && block.size() != 2)
    fields.wrong("weight_block_size", "two whole numbers, rows and columns");
  if (!block.empty()) {
    config.block_n = static_cast<int>(block[0]);
    config.block_k = static_cast<int>(block[1]);
  }
  // V3.2 rounds its scales to powers of two but stores them as f32; V4 stores the exponent byte.
  if (reading.family == AttentionFamily::kCompressed &&
      lower(fields.string("scale format", {"scale_fmt"})) == "ue8m0") {
    config.scale_bits = 8;
  }
}

void read_integer_bits(const Fields& fields, QuantizationConfig& config, bool zero_points) {
  const auto bits = fields.integer("quantization bits", {"bits", "w_bit"}, {1, 16});
  if (!bits) fields.missing({"bits"}, "the width of a stored weight");
  config.group_size = 128;
  read_group_size(fields, config);
  set_format(config, fmt::format("int{}", *bits));
  config.weight_bits = static_cast<double>(*bits);
  config.scale_bits = 16;
  config.zero_points = zero_points;
}

// compressed-tensors and modelopt: groups of modules, each with its weights' format. The first group counts.
void read_config_groups(const Fields& fields, QuantizationConfig& config) {
  const std::optional<Fields> groups = fields.nested("config_groups");
  if (!groups || groups->object().get_if<json::Object>()->empty()) return;
  const std::string first = groups->object().get_if<json::Object>()->front().first;
  const std::optional<Fields> group = groups->nested(first);
  const std::optional<Fields> weights = group ? group->nested("weights") : std::nullopt;
  if (!weights) return;
  const auto bits = weights->integer("quantization bits", {"num_bits"}, {1, 16});
  const std::string type = lower(weights->string("quantization type", {"type"}));
  const std::string packing =
      lower(fields.string("packing", {"format"})) + lower(group->string("packing", {"format"}));
  read_group_size(*weights, config);
  if (!bits) return;
  std::string format = fmt::format("{}{}", type == "float" ? "fp" : "int", *bits);
  if (format == "fp4") format = packing.find("mxfp4") != std::string::npos ? "mxfp4" : "nvfp4";
  set_format(config, format);
  config.weight_bits = static_cast<double>(*bits);
  if (type != "float" && config.group_size > 0) config.scale_bits = 16;
  config.zero_points = weights->boolean("symmetric", {"symmetric"}) == std::optional(false);
  const std::vector<std::int64_t> block = weights->integers("block_structure", {1, 1 << 20});
  if (block.size() == 2) {
    config.block_n = static_cast<int>(block[0]);
    config.block_k = static_cast<int>(block[1]);
  }
}

// Mixed precision names every quantised module. The experts' format is told apart, the commonest other one
// counts.
void read_listed_modules(const Fields& fields, QuantizationConfig& config) {
  const std::optional<Fields> modules = fields.nested("quantized_layers");
  if (!modules) return;
  std::map<std::string, int> experts, others;
  for (const auto& [name, value] : *modules->object().get_if<json::Object>()) {
    const Fields module(value, fields.origin(), modules->path(name));
    const std::string format = format_of_algorithm(lower(module.string("algorithm", {"quant_algo"})));
    if (format.empty()) continue;
    ++(name.find("experts") != std::string::npos ? experts : others)[format];
    config.converted.push_back(name);
  }
  const auto commonest = [](const std::map<std::string, int>& counts) {
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? std::string() : most->first;
  };
  if (config.format.empty()) set_format(config, others.empty() ? commonest(experts) : commonest(others));
  if (commonest(experts) != config.format) config.expert_format = commonest(experts);
}

void read_kept_modules(const Fields& fields, QuantizationConfig& config) {
  for (const char* key : {"modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"}) {
    for (std::string& name : fields.strings(key)) config.not_converted.push_back(std::move(name));
  }
}

void read_cache_wish(const Fields& fields, QuantizationConfig& config) {
  const json::Value* scheme = fields.get("kv_cache_scheme");
  if (scheme != nullptr && scheme->get_if<json::Object>() != nullptr) {
    config.kv_cache_bits = static_cast<int>(
        fields.nested("kv_cache_scheme")->integer("kv_cache bits", {"num_bits"}, {1, 16}).value_or(0));
    return;
  }
  const std::string word =
      lower(fields.string("kv_cache scheme", {"kv_cache_scheme", "kv_cache_quant_algo"}));
  if (word == "fp8") config.kv_cache_bits = 8;
  if (word == "nvfp4" || word == "fp4") config.kv_cache_bits = 4;
}

QuantizationConfig read_block(const Reading& reading, const Fields& fields) {
  QuantizationConfig config;
  config.method = lower(fields.string("quantization method", {"quant_method"}));
  const std::string algorithm = lower(fields.string("quantization algorithm", {"quant_algo"}));
  if (config.method == "fp8" || config.method == "fbgemm_fp8") {
    read_fp8(reading, fields, config);
  } else if (config.method == "awq" || config.method == "gptq") {
    const bool asymmetric = fields.boolean("zero points", {"zero_point"}).value_or(true);
    // GPTQ stores its zero points even where they are all alike.
    read_integer_bits(fields, config, config.method == "gptq" || asymmetric);
  } else if (config.method == "mxfp4") {
    set_format(config, "mxfp4");
    config.experts_only = true;
  } else if (config.method == "bitsandbytes") {
    const bool four = fields.boolean("4-bit", {"load_in_4bit"}).value_or(false);
    set_format(config, four ? "int4" : "int8");
  } else if (fields.has("config_groups")) {
    read_config_groups(fields, config);
  } else if (config.method.empty() && fields.has("bits")) {
    read_integer_bits(fields, config, true);  // MLX: affine, with a bias a group
  }
  if (config.format.empty() && !algorithm.empty()) {
    read_group_size(fields, config);
    set_format(config, format_of_algorithm(algorithm));
  }
  if (config.method.empty()) config.method = algorithm.empty() ? "unnamed" : "modelopt";
  read_listed_modules(fields, config);
  read_kept_modules(fields, config);
  read_cache_wish(fields, config);
  if (config.format.empty()) {
    fields.note("quantization format", "unknown", "method " + config.method + " is not one that can be read");
  }
  return config;
}

std::string summary(const QuantizationConfig& config) {
  std::string text = config.format.empty() ? config.method : config.format;
  if (config.method == "awq" || config.method == "gptq") text = config.method + " " + text;
  if (config.block_n > 0) {
    text += fmt::format(" {}x{}", config.block_n, config.block_k);
  } else if (config.group_size > 0) {
    text += fmt::format(" g{}", config.group_size);
  }
  if (config.experts_only) text += ", experts only";
  if (!config.expert_format.empty()) text += ", experts " + config.expert_format;
  return text;
}

}  // namespace

void read_quantization_file(std::string_view json_text, std::string_view origin, ModelConfig& model) {
  const json::Value root = json::parse(json_text, origin);
  const Fields fields(root, std::string(origin), {}, &model.notes);
  const std::optional<Fields> block = fields.nested("quantization");
  if (!block) fields.missing({"quantization"}, "this file is for nothing else");
  const Reading reading{fields, fields, &model,
                        model.compressed ? AttentionFamily::kCompressed : AttentionFamily::kHeads};
  model.quantization_config = read_block(reading, *block);
  model.quantization = summary(*model.quantization_config);
}

void read_quantization(Reading& reading) {
  ModelConfig& model = *reading.model;
  const std::optional<std::string> experts = reading.text.string("expert_dtype", {"expert_dtype"});
  for (const Fields* part : {&reading.text, &reading.outer}) {
    for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
      if (model.quantization_config) break;
      const json::Value* value = part->get(key);
      if (value == nullptr || value->is_null()) continue;
      if (value->get_if<json::Object>() == nullptr) {
        const std::string said =
            fmt::format("{} is {}, not an object: it is not read, and weights count as unquantised",
                        part->path(key), json::describe(*value));
        if (std::ranges::find(model.warnings, said) == model.warnings.end()) model.warnings.push_back(said);
        continue;
      }
      model.quantization_config = read_block(reading, *part->nested(key));
    }
  }
  if (experts && !model.quantization_config) {
    QuantizationConfig config;
    config.method = "expert_dtype";
    config.experts_only = true;
    set_format(config, *experts == "fp4" ? "mxfp4" : *experts);
    model.quantization_config = config;
  } else if (experts && model.quantization_config->expert_format.empty() &&
             *experts != model.quantization_config->format) {
    model.quantization_config->expert_format = *experts;
  }
  if (model.quantization_config) model.quantization = summary(*model.quantization_config);
}

}  // namespace mla
