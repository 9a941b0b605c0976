// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mla/backend.hpp"
#include "mla/layer.hpp"

/// Golden vectors: MLA layers evaluated by an implementation that is not ours (tests/golden/make_golden.py),
/// against the reference and the CPU backends.
namespace mla::verify {

/// A tensor as the manifest promises it.
struct GoldenTensor {
  std::string dtype;  ///< "F64", "F32", "BF16", "I32"
  std::vector<std::int64_t> shape;
};

/// One set: a layer, its sequences and the file that holds them.
struct GoldenVariant {
  std::string name, file, sha256;
  std::string source;  ///< the class that was run
  std::int64_t bytes = 0;
  LayerConfig layer;
  RopeParameters rope;
  double softmax_scale = 0;                        ///< as the source computed it
  double rope_amplitude = 0;                       ///< as the source computed it
  std::vector<std::int64_t> sequences;             ///< tokens of each
  std::optional<std::int32_t> window, sink, topk;  ///< together or not at all
  std::map<std::string, GoldenTensor> tensors;
};

struct GoldenManifest {
  std::filesystem::path dir;
  std::string environment;              ///< "torch 2.11.0, transformers 5.17.0"
  std::vector<GoldenVariant> variants;  ///< by name
};

/// Reads DIR/manifest.json. Throws kIo / kParse / kInvalidArgument naming file, key and value; a variant that
/// failed when the files were made, or a *.safetensors in DIR that no variant names, is an error too.
[[nodiscard]] GoldenManifest load_golden_manifest(const std::filesystem::path& dir);
[[nodiscard]] GoldenManifest parse_golden_manifest(std::string_view text, const std::filesystem::path& dir);

/// One tensor recomputed one way.
struct GoldenCheck {
  std::string tensor;  ///< "seq0.out_f64", "softmax_scale", "file"
  std::string path;    ///< how it was recomputed: "expanded", "absorbed", "decode", "cpu-absorbed", ...
  double error =
      0;  ///< largest |got - want|, relative to the tensor's largest value unless `what` says otherwise
  double limit = 0;
  bool passed = true;
  bool skipped = false;  ///< not checked; detail says why
  std::string detail;    ///< of a failure: the element, got and want
};

struct GoldenResult {
  std::string set;
  std::vector<GoldenCheck> checks;
  [[nodiscard]] bool passed() const noexcept;
  /// Largest error / limit.
  [[nodiscard]] const GoldenCheck* worst() const noexcept;
};

/// Checks one set in every way there is. `backends` are run on its queries and rows in double precision
/// (those that refuse f64 are left out). Throws kInvalidArgument / kParse for a missing, extra or misshaped
/// tensor.
[[nodiscard]] GoldenResult check_golden(const GoldenManifest& manifest, const GoldenVariant& variant,
                                        std::span<const Backend* const> backends);

/// SHA-256 of a file as lower-case hex, or empty where this build has no library that computes it. Throws
/// kIo.
[[nodiscard]] std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace mla::verify
