// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mla/layer.hpp"
#include "verify/layer_weights.hpp"
#include "verify/run_suite.hpp"

/// A real layer through the reference and the backends.
namespace mla::verify {

/// What goes into the layer, and what should come out of it where somebody knows.
struct LayerInput {
  std::vector<double> hidden;           ///< [tokens, hidden]
  std::vector<std::int64_t> positions;  ///< [tokens]
  std::vector<double> out;              ///< [tokens, hidden] or empty
  DType out_dtype = DType::kF32;        ///< as stored
};

/// Standard normal numbers on the bf16 grid at positions start, start + 1, ...
[[nodiscard]] LayerInput random_input(int hidden_size, std::int64_t tokens, std::int64_t start,
                                      std::uint64_t seed);
/// A safetensors file with `hidden` ([tokens, hidden] or [1, tokens, hidden]) and, if they are there,
/// `positions` [tokens] and `out` (shape of hidden). Throws naming file, tensor and shape.
[[nodiscard]] LayerInput read_input(const std::filesystem::path& path, int hidden_size, std::int64_t start);

struct LayerOptions {
  YarnRule rule = YarnRule::kTransformers;
  bool f32_angles = false;
  std::vector<CacheFormat> formats;  ///< caches that backends are tried with
};

/// One thing that was compared.
struct LayerCheck {
  std::string what;     ///< "absorbed against expanded"
  std::string backend;  ///< "reference" or a backend's name
  std::string cache;    ///< format, or empty
  double share = 0;     ///< of the limit or budget
  bool passed = true;
  bool refused = false;  ///< the backend does not do this; `finding` says why
  std::string finding;
};

struct LayerResult {
  LayerStep step;  ///< of the reference, expanded form, all tokens at once
  double softmax_scale = 0, rope_amplitude = 1;
  double max_score = 0;  ///< largest |scaled score|
  std::vector<LayerCheck> checks;
  [[nodiscard]] bool passed() const noexcept;
};

/// `model` gives the rotary part; everything else is in `layer`.
[[nodiscard]] LayerResult check_layer(const LoadedLayer& layer, const ModelConfig& model,
                                      const LayerInput& input, const LayerOptions& options,
                                      std::span<const Participant> participants);

/// Writes out, attention, lse, rows and q of a step (f64). Throws kIo.
void save_step(const std::filesystem::path& path, const LoadedLayer& layer, const LayerStep& step);

}  // namespace mla::verify
