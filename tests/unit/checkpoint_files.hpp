// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "json_text.hpp"
#include "mla/dtype.hpp"
#include "mla/safetensors.hpp"

/// Checkpoints in the shape of published ones, made of a golden set's weights: names of a decoder layer,
/// shards behind an index, fp8 with block scales.
namespace mla::test {

struct StoredTensor {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  [[nodiscard]] double get(std::size_t i) const {
    return load_element(bytes.data(), dtype, static_cast<std::int64_t>(i));
  }
  void set(std::size_t i, double value) {
    store_element(bytes.data(), dtype, static_cast<std::int64_t>(i), value);
  }
};

using Tensors = std::map<std::string, StoredTensor>;

/// Golden set v3_small: heads 5, L 32, R 8, P 16, V 16, hidden 80, q_lora_rank 24; made by transformers.
inline Tensors golden_tensors() {
  Tensors all;
  const SafetensorsFile file =
      SafetensorsFile::open(std::string(MLA_TEST_DATA) + "/golden/v3_small.safetensors");
  for (const auto& [name, t] : file.tensors())
    all[name] = {t.dtype, t.shape, std::vector<std::byte>(t.bytes.begin(), t.bytes.end())};
  return all;
}

/// The set's weights under `prefix`.
inline Tensors layer_weights(const std::string& prefix) {
  Tensors weights;
  for (auto& [name, t] : golden_tensors()) {
    if (name.starts_with("w.")) weights[prefix + name.substr(2)] = t;
  }
  return weights;
}

/// Replaces a matrix by e4m3 codes and one scale for each 128 x 128 block (the last ones smaller): code = w /
/// scale with scale = amax / 448.
inline void make_fp8(Tensors& tensors, const std::string& matrix, std::int64_t block = 128) {
  const StoredTensor whole = tensors.at(matrix + ".weight");
  const std::int64_t rows = whole.shape[0], columns = whole.shape[1];
  const std::int64_t down = (rows + block - 1) / block, across = (columns + block - 1) / block;
  StoredTensor codes{DType::kE4M3, whole.shape,
                     std::vector<std::byte>(static_cast<std::size_t>(rows * columns))};
  StoredTensor scales{
      DType::kF32, {down, across}, std::vector<std::byte>(static_cast<std::size_t>(4 * down * across))};
  const auto at = [columns](std::int64_t r, std::int64_t c) {
    return static_cast<std::size_t>(r * columns + c);
  };
  for (std::int64_t b = 0; b < down * across; ++b) {
    const std::int64_t r0 = b / across * block, c0 = b % across * block;
    double amax = 0;
    const auto each = [&](const std::function<void(std::size_t)>& visit) {
      for (std::int64_t r = r0; r < std::min(rows, r0 + block); ++r)
        for (std::int64_t c = c0; c < std::min(columns, c0 + block); ++c) visit(at(r, c));
    };
    each([&](std::size_t i) { amax = std::max(amax, std::abs(whole.get(i))); });
    scales.set(static_cast<std::size_t>(b), amax / 448);
    const double scale = scales.get(static_cast<std::size_t>(b));
    each([&](std::size_t i) { codes.set(i, whole.get(i) / scale); });
  }
  tensors[matrix + ".weight"] = codes;
  tensors[matrix + ".weight_scale_inv"] = scales;
}

inline void write_file(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, t] : tensors) list.push_back({name, t.dtype, t.shape, t.bytes});
  write_safetensors(path, list);
}

/// model-0000i-of-0000n.safetensors, tensors dealt out in turn, and model.safetensors.index.json.
inline void write_shards(const std::filesystem::path& folder, const Tensors& tensors, std::size_t shards) {
  std::vector<Tensors> parts(shards);
  std::string map;
  std::size_t next = 0;
  const auto file = [shards](std::size_t i) {
    return "model-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(shards) + ".safetensors";
  };
  for (const auto& [name, t] : tensors) {
    map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + file(next) + "\"";
    parts[next][name] = t;
    next = (next + 1) % shards;
  }
  for (std::size_t i = 0; i < shards; ++i) write_file(folder / file(i), parts[i]);
  std::ofstream(folder / "model.safetensors.index.json")
      << R"({"metadata": {"total_size": 1}, "weight_map": {)" << map << "}}";
}

/// config.json of the golden set.
inline JsonText small_config() {
  return mla_config()
      .with("hidden_size", "80")
      .with("num_attention_heads", "5")
      .with("num_key_value_heads", "5")
      .with("q_lora_rank", "24")
      .with("kv_lora_rank", "32")
      .with("qk_nope_head_dim", "16")
      .with("qk_rope_head_dim", "8")
      .with("v_head_dim", "16")
      .with("rms_norm_eps", "1e-06")
      .with("rope_theta", "10000.0")
      .with("rope_interleave", "true")
      .without("rope_scaling");
}

}  // namespace mla::test
