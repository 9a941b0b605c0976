// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mla/layer.hpp"
#include "mla/model.hpp"
#include "verify/checkpoint.hpp"

/// One MLA layer out of a checkpoint, by the names that DeepSeek, Kimi, GLM, MiniCPM3 and LongCat use.
namespace mla::verify {

/// A tensor that was read.
struct ReadTensor {
  std::string name;
  std::string stored_dtype;  ///< "BF16", "F8_E4M3"
  std::vector<std::int64_t> shape;
  std::string scales;  ///< of fp8: the scale tensor and its blocks, else empty
};

struct LoadedLayer {
  std::string prefix;  ///< "model.layers.3.self_attn."
  LayerConfig config;
  LayerWeights weights;
  std::vector<ReadTensor> tensors;
  std::vector<std::string> not_read;  ///< tensors under the prefix that the attention itself does not use
};

/// Prefixes of the MLA blocks of a layer, ascending: one, or LongCat's two ("...self_attn.0.",
/// "...self_attn.1."). Throws kInvalidArgument naming what there is instead: no such layer, a layer of
/// another kind, more than one tower, fused or split projections.
[[nodiscard]] std::vector<std::string> find_blocks(const Checkpoint& checkpoint, std::int64_t layer);

/// Reads a block's weights as doubles: bf16, fp16 and fp32 as they are, fp8 e4m3 times its scales
/// (`weight_scale_inv` in blocks as the model's quantization_config says, 128 x 128 if it says nothing;
/// `weight_scale` a tensor or a row). Throws kInvalidArgument naming tensor, shape found and shape wanted.
[[nodiscard]] LoadedLayer load_block(const Checkpoint& checkpoint, const std::string& prefix,
                                     const ModelConfig& model, double norm_eps);

}  // namespace mla::verify
