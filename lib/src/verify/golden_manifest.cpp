// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "mla/error.hpp"
#include "model/json_node.hpp"
#include "verify/golden.hpp"

namespace mla::verify {
namespace {

using json::Node;

constexpr std::int64_t kLargest = 1 << 24;

/// "interleaved ..." or "half-split ...": the rest of the text explains it to people.
RopeLayout parse_layout(const Node& node) {
  const std::string text = node.text();
  if (text.starts_with("interleaved")) return RopeLayout::kInterleaved;
  if (text.starts_with("half-split")) return RopeLayout::kHalfSplit;
  node.refuse(fmt::format("is '{}', but must start with interleaved or half-split", text));
}

LayerConfig parse_layer(const Node& variant) {
  const Node config = variant.at("config");
  const auto width = [&](const char* key) { return static_cast<int>(config.at(key).count(0, kLargest)); };
  LayerConfig layer;
  layer.dims = {width("num_attention_heads"), width("kv_lora_rank"), width("qk_rope_head_dim"),
                width("qk_nope_head_dim"), width("v_head_dim")};
  layer.hidden_size = static_cast<int>(config.at("hidden_size").count(1, kLargest));
  if (const auto rank = config.find("q_lora_rank"))
    layer.q_lora_rank = static_cast<int>(rank->count(1, kLargest));
  const Node eps = variant.at("latent_norm_eps");
  layer.kv_norm_eps = eps.at("kv_a_layernorm").number();
  if (layer.q_lora_rank) layer.q_norm_eps = eps.at("q_a_layernorm").number();
  layer.rope_input = parse_layout(variant.at("rope_pairs_in_weights"));
  layer.rope_output = parse_layout(variant.at("rope_layout_of_saved_q_pe_k_pe"));
  try {
    validate(layer.dims);
  } catch (const Error& e) {
    config.refuse(e.what());
  }
  return layer;
}

RopeParameters parse_rope(const Node& node, int dim) {
  RopeParameters rope;
  rope.dim = dim;
  rope.theta = node.at("rope_theta").number();
  const std::string type = node.at("rope_type").text();
  if (type == "default") return rope;
  if (type != "yarn") node.refuse(fmt::format("rope_type is '{}', but must be default or yarn", type));
  rope.yarn = true;
  rope.factor = node.at("factor").number();
  rope.original_max_position = node.at("original_max_position_embeddings").count(1, INT32_MAX);
  if (const auto x = node.find("beta_fast")) rope.beta_fast = x->number();
  if (const auto x = node.find("beta_slow")) rope.beta_slow = x->number();
  if (const auto x = node.find("mscale")) rope.mscale = x->number();
  if (const auto x = node.find("mscale_all_dim")) rope.mscale_all_dim = x->number();
  if (const auto x = node.find("attention_factor")) rope.attention_factor = x->number();
  return rope;
}

std::map<std::string, GoldenTensor> parse_tensors(const Node& node) {
  std::map<std::string, GoldenTensor> tensors;
  for (const auto& [name, entry] : node.members()) {
    const std::vector<Node> parts = entry.items();
    if (parts.size() != 2) entry.refuse("must be [dtype, shape]");
    GoldenTensor tensor;
    tensor.dtype = parts[0].text();
    for (const Node& extent : parts[1].items()) tensor.shape.push_back(extent.count(0, kLargest));
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

GoldenVariant parse_variant(const std::string& name, const Node& node) {
  GoldenVariant v;
  v.name = name;
  v.file = node.at("file").text();
  if (v.file.empty() || v.file.find('/') != std::string::npos) {
    node.at("file").refuse(fmt::format("is '{}', but must be a file name in the same folder", v.file));
  }
  v.bytes = node.at("bytes").count(0, INT64_MAX - 1);
  v.sha256 = node.at("sha256").text();
  v.source = node.at("attention_class").text();
  v.layer = parse_layer(node);
  v.rope = parse_rope(node.at("rope"), v.layer.dims.qk_rope_head_dim);
  v.softmax_scale = node.at("softmax_scale").number();
  v.rope_amplitude = node.at("rope_attention_scaling").number();
  for (const Node& n : node.at("sequences").items()) v.sequences.push_back(n.count(1, kLargest));
  const auto optional = [&](const char* key) -> std::optional<std::int32_t> {
    const auto found = node.find(key);
    if (!found) return std::nullopt;
    return static_cast<std::int32_t>(found->count(0, kLargest));
  };
  v.window = optional("window");
  v.sink = optional("sink_tokens");
  v.topk = optional("topk");
  if (v.window.has_value() != v.sink.has_value() || v.window.has_value() != v.topk.has_value()) {
    node.refuse("window, sink_tokens and topk must be given together or not at all");
  }
  v.tensors = parse_tensors(node.at("tensors"));
  return v;
}

void refuse_strangers(const GoldenManifest& manifest) {
  std::set<std::string> known;
  for (const GoldenVariant& v : manifest.variants) known.insert(v.file);
  for (const auto& entry : std::filesystem::directory_iterator(manifest.dir)) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() == ".safetensors" && !known.contains(file)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is not in manifest.json, so nothing says what it should hold",
                              entry.path().string()));
    }
  }
}

}  // namespace

GoldenManifest parse_golden_manifest(std::string_view text, const std::filesystem::path& dir) {
  const std::string origin = (dir / "manifest.json").string();
  const json::Value value = json::parse(text, origin);
  const Node root(value, origin);
  const std::int64_t format = root.at("format").count(0, kLargest);
  if (format != 1) root.refuse(fmt::format("format is {}, but this version reads format 1", format));
  GoldenManifest manifest;
  manifest.dir = dir;
  const Node environment = root.at("environment");
  manifest.environment = fmt::format("torch {}, transformers {}", environment.at("torch").text(),
                                     environment.at("transformers").text());
  for (const auto& [name, why] : root.at("failed").members()) {
    root.refuse(fmt::format("set '{}' failed when the files were made: {}", name, why.text()));
  }
  for (const auto& [name, variant] : root.at("variants").members())
    manifest.variants.push_back(parse_variant(name, variant));
  std::ranges::sort(manifest.variants, {}, &GoldenVariant::name);
  if (manifest.variants.empty()) root.refuse("variants is empty: nothing to verify");
  return manifest;
}

GoldenManifest load_golden_manifest(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "manifest.json";
  if (!std::filesystem::is_directory(dir)) {
    throw Error(ErrorCode::kIo, fmt::format("{} is not a folder", dir.string()));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, fmt::format("{} cannot be opened", path.string()));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  GoldenManifest manifest = parse_golden_manifest(text, dir);
  refuse_strangers(manifest);
  return manifest;
}

}  // namespace mla::verify
