// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/safetensors.hpp"
#include "verify/golden.hpp"

namespace mla::verify {

/// The open file of a set, its inventory checked against the manifest and against what the layer needs.
class GoldenData {
 public:
  /// Throws kInvalidArgument naming the tensor: one is missing, extra, of another type or shape.
  GoldenData(const GoldenManifest& manifest, const GoldenVariant& variant);

  [[nodiscard]] const GoldenVariant& variant() const noexcept { return variant_; }
  [[nodiscard]] const LayerWeights& weights() const noexcept { return weights_; }
  [[nodiscard]] const UpProjections& up() const noexcept { return up_; }
  [[nodiscard]] const SafeTensor& tensor(const std::string& name) const { return file_.at(name); }
  [[nodiscard]] std::vector<double> values(const std::string& name) const { return tensor(name).to_double(); }
  [[nodiscard]] std::vector<std::int64_t> positions(std::size_t sequence) const;
  /// The table of the saved single-precision cos and sin.
  [[nodiscard]] RopeTable saved_rope(std::size_t sequence) const;

 private:
  void check_inventory() const;
  void load_weights();
  [[nodiscard]] std::vector<double> weight(const std::string& name, std::vector<std::int64_t> shape) const;
  void expect_shape(const std::string& name, const std::vector<std::int64_t>& shape) const;

  const GoldenVariant& variant_;
  SafetensorsFile file_;
  LayerWeights weights_;
  UpProjections up_;
};

/// "seq2."
[[nodiscard]] std::string sequence_prefix(std::size_t sequence);

}  // namespace mla::verify
