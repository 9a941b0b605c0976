// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_data.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mla/error.hpp"

namespace mla::verify {
namespace {

[[noreturn]] void refuse(const GoldenVariant& variant, const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", variant.file, sentence));
}

}  // namespace

std::string sequence_prefix(std::size_t sequence) {
  return fmt::format("seq{}.", sequence);
}

GoldenData::GoldenData(const GoldenManifest& manifest, const GoldenVariant& variant)
    : variant_(variant), file_(SafetensorsFile::open(manifest.dir / variant.file)) {
  check_inventory();
  load_weights();
}

void GoldenData::check_inventory() const {
  for (const auto& [name, promised] : variant_.tensors) {
    const SafeTensor* found = file_.find(name);
    if (found == nullptr) refuse(variant_, fmt::format("tensor '{}' of the manifest is missing", name));
    if (found->stored_dtype != promised.dtype || found->shape != promised.shape) {
      refuse(variant_,
             fmt::format("tensor '{}' is {} [{}], but the manifest says {} [{}]", name, found->stored_dtype,
                         fmt::join(found->shape, ", "), promised.dtype, fmt::join(promised.shape, ", ")));
    }
  }
  for (const auto& [name, tensor] : file_.tensors()) {
    if (!variant_.tensors.contains(name))
      refuse(variant_, fmt::format("tensor '{}' is not in the manifest", name));
  }
  const LayerConfig& layer = variant_.layer;
  const MlaDims& d = layer.dims;
  const std::int64_t heads = d.num_heads;
  for (std::size_t s = 0; s < variant_.sequences.size(); ++s) {
    const std::int64_t n = variant_.sequences[s];
    const std::int64_t tail = std::min<std::int64_t>(3, n - 1);
    const std::string pre = sequence_prefix(s);
    const auto expect = [&](const char* name, std::vector<std::int64_t> shape) {
      expect_shape(pre + name, shape);
    };
    expect("hidden", {n, layer.hidden_size});
    expect("positions", {n});
    for (const char* name : {"cos", "sin"}) expect(name, {n, d.qk_rope_head_dim / 2});
    for (const char* name : {"c_kv_f32", "c_kv_bf16"}) expect(name, {n, d.kv_lora_rank});
    for (const char* name : {"k_pe_f32", "k_pe_bf16"}) expect(name, {n, d.qk_rope_head_dim});
    expect("q_nope_f32", {n, heads, d.qk_nope_head_dim});
    expect("q_pe_f32", {n, heads, d.qk_rope_head_dim});
    expect("attn_f64", {n, heads * d.v_head_dim});
    expect("lse_f64", {heads, n});
    for (const char* name : {"out_f64", "out_f32", "out_bf16"}) expect(name, {n, layer.hidden_size});
    if (tail > 0) {
      for (const char* name : {"decode.out_f32", "multi.out_f32"}) expect(name, {tail, layer.hidden_size});
    }
    if (variant_.window && s == 0) {
      expect("topk.indices", {n, *variant_.topk});
      for (const std::string mask : {"window_sink.", "topk."}) {
        expect_shape(pre + mask + "attn_f64", {n, heads * d.v_head_dim});
        expect_shape(pre + mask + "lse_f64", {heads, n});
        expect_shape(pre + mask + "out_f64", {n, layer.hidden_size});
      }
    }
  }
}

void GoldenData::expect_shape(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const SafeTensor* found = file_.find(name);
  if (found == nullptr) refuse(variant_, fmt::format("tensor '{}', which the layer needs, is missing", name));
  if (found->shape != shape) {
    refuse(variant_, fmt::format("tensor '{}' is [{}], but the layer needs [{}]", name,
                                 fmt::join(found->shape, ", "), fmt::join(shape, ", ")));
  }
}

std::vector<double> GoldenData::weight(const std::string& name, std::vector<std::int64_t> shape) const {
  expect_shape("w." + name, shape);
  return values("w." + name);
}

void GoldenData::load_weights() {
  const LayerConfig& layer = variant_.layer;
  const MlaDims& d = layer.dims;
  const std::int64_t hidden = layer.hidden_size;
  const std::int64_t query = static_cast<std::int64_t>(d.num_heads) * d.head_width();
  const std::int64_t value = static_cast<std::int64_t>(d.num_heads) * d.v_head_dim;
  const auto bias = [&](const std::string& name, std::int64_t size) {
    return file_.find("w." + name) == nullptr ? std::vector<double>{} : weight(name, {size});
  };
  if (layer.q_lora_rank) {
    const std::int64_t rank = *layer.q_lora_rank;
    weights_.q_a_proj = weight("q_a_proj.weight", {rank, hidden});
    weights_.q_a_proj_bias = bias("q_a_proj.bias", rank);
    weights_.q_a_layernorm = weight("q_a_layernorm.weight", {rank});
    weights_.q_b_proj = weight("q_b_proj.weight", {query, rank});
  } else {
    weights_.q_proj = weight("q_proj.weight", {query, hidden});
  }
  weights_.kv_a_proj = weight("kv_a_proj_with_mqa.weight", {d.latent_width(), hidden});
  weights_.kv_a_proj_bias = bias("kv_a_proj_with_mqa.bias", d.latent_width());
  weights_.kv_a_layernorm = weight("kv_a_layernorm.weight", {d.kv_lora_rank});
  weights_.kv_b_proj =
      weight("kv_b_proj.weight",
             {static_cast<std::int64_t>(d.num_heads) * (d.qk_nope_head_dim + d.v_head_dim), d.kv_lora_rank});
  weights_.o_proj = weight("o_proj.weight", {hidden, value});
  weights_.o_proj_bias = bias("o_proj.bias", hidden);
  up_ = split_kv_b(d, weights_.kv_b_proj);
}

std::vector<std::int64_t> GoldenData::positions(std::size_t sequence) const {
  const std::vector<double> saved = values(sequence_prefix(sequence) + "positions");
  std::vector<std::int64_t> positions;
  for (const double p : saved) positions.push_back(static_cast<std::int64_t>(p));
  return positions;
}

RopeTable GoldenData::saved_rope(std::size_t sequence) const {
  RopeTable table;
  table.half = variant_.layer.dims.qk_rope_head_dim / 2;
  table.cos = values(sequence_prefix(sequence) + "cos");
  table.sin = values(sequence_prefix(sequence) + "sin");
  table.amplitude = variant_.rope_amplitude;
  return table;
}

}  // namespace mla::verify
