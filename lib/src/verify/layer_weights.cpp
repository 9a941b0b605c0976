// SPDX-License-Identifier: Apache-2.0
#include "verify/layer_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"

namespace mla::verify {
namespace {

using capacity::ceil_div;

[[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, what, hint);
}

/// Projections that engines make out of the checkpoint's own ones; their rows and columns stand in an order
/// of the engine's.
struct Remade {
  const char* name;
  const char* from;
};
constexpr Remade kRemade[] = {{"fused_qkv_a_proj_with_mqa", "q_a_proj and kv_a_proj_with_mqa in one"},
                              {"fused_qkv_a_proj", "q_a_proj and kv_a_proj_with_mqa in one"},
                              {"qkv_a_proj_with_mqa", "q_a_proj and kv_a_proj_with_mqa in one"},
                              {"qkv_a_proj", "q_a_proj and kv_a_proj_with_mqa in one"},
                              {"qkv_proj", "q, k and v in one"},
                              {"k_b_proj", "the key half of kv_b_proj"},
                              {"v_b_proj", "the value half of kv_b_proj"},
                              {"w_kc", "the key half of kv_b_proj"},
                              {"w_vc", "the value half of kv_b_proj"}};

/// How other quantisation methods name what takes a weight's place.
constexpr const char* kPacked[] = {"weight_packed", "qweight", "weight_q", "weight_quantized"};

/// Reads the tensors of one block, remembering which.
class BlockReader {
 public:
  BlockReader(const Checkpoint& checkpoint, std::string prefix, const ModelConfig& model)
      : checkpoint_(checkpoint), prefix_(std::move(prefix)) {
    if (model.quantization_config && model.quantization_config->block_n > 0) {
      block_n_ = model.quantization_config->block_n;
      block_k_ = model.quantization_config->block_k;
    }
  }

  [[nodiscard]] bool has(const std::string& name) const { return checkpoint_.has(prefix_ + name); }

  [[nodiscard]] std::vector<double> vector(const std::string& name, std::int64_t width) {
    const SafeTensor& tensor = take(name, {width});
    require_plain(tensor);
    return tensor.to_double();
  }

  [[nodiscard]] std::vector<double> matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const SafeTensor& tensor = take(name + ".weight", {rows, columns});
    if (tensor.dtype != DType::kE4M3) {
      require_plain(tensor);
      return tensor.to_double();
    }
    std::vector<double> values = tensor.to_double();
    apply_scales(name, rows, columns, values);
    return values;
  }

  [[nodiscard]] std::vector<ReadTensor> tensors() && { return std::move(tensors_); }
  [[nodiscard]] std::vector<std::string> not_read() const {
    std::vector<std::string> rest;
    for (const std::string& name : checkpoint_.names()) {
      if (name.starts_with(prefix_) && !taken_.contains(name)) rest.push_back(name.substr(prefix_.size()));
    }
    return rest;
  }

 private:
  const SafeTensor& take(const std::string& name, const std::vector<std::int64_t>& shape) {
    const std::string full = prefix_ + name;
    if (!checkpoint_.has(full)) refuse_missing(name);
    const SafeTensor& tensor = checkpoint_.at(full);
    if (tensor.shape != shape) {
      refuse(fmt::format("{} has the shape [{}], but the configuration wants [{}]", full,
                         fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
    }
    taken_.insert(full);
    tensors_.push_back({full, tensor.stored_dtype, tensor.shape, {}});
    return tensor;
  }

  [[noreturn]] void refuse_missing(const std::string& name) const {
    const std::string module = name.substr(0, name.rfind('.'));
    for (const char* packed : kPacked) {
      if (has(module + "." + packed)) {
        refuse(fmt::format("{}{} is stored as {}: only bf16, fp16, fp32 and fp8 e4m3 weights are read",
                           prefix_, module, packed));
      }
    }
    for (const Remade& remade : kRemade) {
      if (has(fmt::format("{}.weight", remade.name)) || has(remade.name)) {
        refuse(
            fmt::format("{0}{1} is missing; there is {0}{2} instead, {3}, as an engine's converted weights "
                        "have it",
                        prefix_, name, remade.name, remade.from),
            "give the checkpoint as published");
      }
    }
    std::vector<std::string> known;
    for (const std::string& have : checkpoint_.names()) {
      if (have.starts_with(prefix_)) known.push_back(have.substr(prefix_.size()));
    }
    refuse(fmt::format("{}{} is missing", prefix_, name), text::suggestion(name, known));
  }

  void require_plain(const SafeTensor& tensor) const {
    if (tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kF32 ||
        tensor.dtype == DType::kF64) {
      return;
    }
    refuse(fmt::format("{} is stored as {}, but it must be BF16, F16, F32 or F64 (matrices also F8_E4M3)",
                       tensor.name, tensor.stored_dtype));
  }

  void apply_scales(const std::string& name, std::int64_t rows, std::int64_t columns,
                    std::vector<double>& values) {
    const std::string in_blocks = name + ".weight_scale_inv", whole = name + ".weight_scale";
    std::int64_t block_n = block_n_, block_k = block_k_;
    const std::string& used = has(in_blocks) ? in_blocks : whole;
    if (!has(used)) {
      refuse(fmt::format("{}{} is missing: {}{}.weight is fp8 and has no meaning without its scales", prefix_,
                         in_blocks, prefix_, name));
    }
    const SafeTensor& scales = checkpoint_.at(prefix_ + used);
    std::vector<std::int64_t> want{ceil_div(rows, block_n), ceil_div(columns, block_k)};
    if (&used == &whole) {
      const bool one = scales.numel() == 1;
      block_n = one ? rows : 1;
      block_k = columns;
      want = one ? scales.shape : std::vector<std::int64_t>{rows, 1};
    }
    if (scales.shape != want) {
      refuse(fmt::format("{}{} has the shape [{}], but [{}, {}] in blocks of {} x {} wants [{}]", prefix_,
                         used, fmt::join(scales.shape, ", "), rows, columns, block_n, block_k,
                         fmt::join(want, ", ")));
    }
    if (scales.dtype == DType::kE4M3 || scales.dtype == DType::kI32 || scales.dtype == DType::kI64 ||
        scales.dtype == DType::kU8) {
      refuse(fmt::format("{}{} is stored as {}, but scales are F32, BF16, F16 or F8_E8M0", prefix_, used,
                         scales.stored_dtype));
    }
    const std::vector<double> factor = scales.to_double();
    const std::int64_t across = ceil_div(columns, block_k);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        values[static_cast<std::size_t>(r * columns + c)] *=
            factor[static_cast<std::size_t>(r / block_n * across + c / block_k)];
      }
    }
    taken_.insert(prefix_ + used);
    tensors_.back().scales =
        fmt::format("{} in blocks of {} x {}", used.substr(name.size() + 1), block_n, block_k);
  }

  const Checkpoint& checkpoint_;
  std::string prefix_;
  std::int64_t block_n_ = 128, block_k_ = 128;
  std::set<std::string> taken_;
  std::vector<ReadTensor> tensors_;
};

/// A bias is there exactly if the configuration says so: a forgotten one and one that engines would drop are
/// both faults.
std::vector<double> bias(BlockReader& reader, const std::string& prefix, const std::string& name,
                         std::int64_t width, bool expected) {
  if (expected) return reader.vector(name, width);
  if (reader.has(name)) {
    refuse(fmt::format("{}{} is there, but attention_bias of the configuration is false", prefix, name));
  }
  return {};
}

void require_finite(const std::vector<double>& values, const std::string& name) {
  const auto bad = std::ranges::find_if(values, [](double x) { return !std::isfinite(x); });
  if (bad != values.end()) {
    refuse(fmt::format("{}: element {} is {}", name, bad - values.begin(), *bad));
  }
}

/// "model.layers.3." of a name that has it, else empty; towers that draft tokens are not the layer that is
/// meant.
std::string layer_prefix(const std::string& name, const std::string& layer) {
  const std::size_t at = name.find(layer);
  if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) return {};
  const std::string before = name.substr(0, at);
  if (before.find("mtp") != std::string::npos || before.find("vision") != std::string::npos) return {};
  return before + layer;
}

}  // namespace

std::vector<std::string> find_blocks(const Checkpoint& checkpoint, std::int64_t layer) {
  const std::string word = fmt::format("layers.{}.", layer);
  std::set<std::string> layers, blocks, modules;
  for (const std::string& name : checkpoint.names()) {
    const std::string prefix = layer_prefix(name, word);
    if (prefix.empty()) continue;
    layers.insert(prefix);
    const std::size_t attention = name.find("self_attn.", prefix.size());
    if (attention != prefix.size()) continue;
    const std::string rest = name.substr(prefix.size() + 10);
    const std::size_t dot = rest.find('.');
    const bool numbered = dot == 1 && rest[0] >= '0' && rest[0] <= '9';
    blocks.insert(prefix + "self_attn." + (numbered ? rest.substr(0, 2) : ""));
    modules.insert(numbered ? rest.substr(2, rest.find('.', 2) - 2) : rest.substr(0, dot));
  }
  const std::string where = text::quoted(checkpoint.path().string());
  if (layers.empty())
    refuse(fmt::format("{} has no tensor of layer {} (no name with '{}')", where, layer, word));
  if (layers.size() > 1) {
    refuse(fmt::format("{} has more than one layer {}: {}", where, layer, fmt::join(layers, " and ")));
  }
  if (blocks.empty()) {
    refuse(fmt::format("layer {} of {} has no self_attn.* tensor under {}", layer, where, *layers.begin()));
  }
  static const std::set<std::string> kMla{"kv_a_proj_with_mqa", "kv_b_proj", "kv_a_layernorm", "q_a_proj"};
  const bool mla = std::ranges::any_of(modules, [](const std::string& m) { return kMla.contains(m); });
  const bool remade = std::ranges::any_of(kRemade, [&](const Remade& r) { return modules.contains(r.name); });
  if (!mla && !remade) {
    refuse(fmt::format("layer {} of {} is not MLA: its attention has {}", layer, where,
                       fmt::join(modules, ", ")));
  }
  return {blocks.begin(), blocks.end()};
}

LoadedLayer load_block(const Checkpoint& checkpoint, const std::string& prefix, const ModelConfig& model,
                       double norm_eps) {
  if (!model.mla)
    refuse(fmt::format("the configuration {} is not of an MLA model: it has no kv_lora_rank",
                       text::quoted(model.path.empty() ? model.name : model.path)));
  if (model.attention_gate || model.attention_gate_per_head) {
    refuse(fmt::format("{} has an output gate, which the reference layer does not compute", model.name));
  }
  LoadedLayer loaded;
  loaded.prefix = prefix;
  LayerConfig& config = loaded.config;
  config.dims = *model.mla;
  config.hidden_size = model.hidden_size;
  config.q_lora_rank = model.q_lora_rank;
  config.q_norm_eps = config.kv_norm_eps = norm_eps;
  config.rope_input = config.rope_output = model.rope_layout;
  config.q_multiplier = model.mla_q_multiplier;
  config.kv_multiplier = model.mla_kv_multiplier;

  const MlaDims& d = config.dims;
  const std::int64_t hidden = config.hidden_size, heads = d.num_heads;
  BlockReader reader(checkpoint, prefix, model);
  LayerWeights& w = loaded.weights;
  if (config.q_lora_rank) {
    if (reader.has("q_proj.weight") && !reader.has("q_a_proj.weight")) {
      refuse(
          fmt::format("{}q_proj.weight is there, but q_lora_rank {} of the configuration wants q_a_proj and "
                      "q_b_proj",
                      prefix, *config.q_lora_rank));
    }
    const std::int64_t rank = *config.q_lora_rank;
    w.q_a_proj = reader.matrix("q_a_proj", rank, hidden);
    w.q_a_proj_bias = bias(reader, prefix, "q_a_proj.bias", rank, model.attention_bias);
    w.q_a_layernorm = reader.vector("q_a_layernorm.weight", rank);
    w.q_b_proj = reader.matrix("q_b_proj", heads * d.head_width(), rank);
  } else {
    if (reader.has("q_a_proj.weight")) {
      refuse(fmt::format(
          "{}q_a_proj.weight is there, but q_lora_rank of the configuration is null, which wants a "
          "single q_proj",
          prefix));
    }
    w.q_proj = reader.matrix("q_proj", heads * d.head_width(), hidden);
  }
  w.kv_a_proj = reader.matrix("kv_a_proj_with_mqa", d.latent_width(), hidden);
  w.kv_a_proj_bias = bias(reader, prefix, "kv_a_proj_with_mqa.bias", d.latent_width(), model.attention_bias);
  w.kv_a_layernorm = reader.vector("kv_a_layernorm.weight", d.kv_lora_rank);
  w.kv_b_proj = reader.matrix("kv_b_proj", heads * (d.qk_nope_head_dim + d.v_head_dim), d.kv_lora_rank);
  w.o_proj = reader.matrix("o_proj", hidden, heads * d.v_head_dim);
  w.o_proj_bias = bias(reader, prefix, "o_proj.bias", hidden, model.attention_bias);
  for (const auto& [name, values] : {std::pair{"q_a_proj", &w.q_a_proj},
                                     {"q_b_proj", &w.q_b_proj},
                                     {"q_proj", &w.q_proj},
                                     {"kv_a_proj_with_mqa", &w.kv_a_proj},
                                     {"kv_b_proj", &w.kv_b_proj},
                                     {"o_proj", &w.o_proj},
                                     {"q_a_layernorm", &w.q_a_layernorm},
                                     {"kv_a_layernorm", &w.kv_a_layernorm}}) {
    require_finite(*values, prefix + name);
  }
  loaded.not_read = reader.not_read();
  loaded.tensors = std::move(reader).tensors();
  return loaded;
}

}  // namespace mla::verify
