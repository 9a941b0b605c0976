// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mla/capacity.hpp"

/// Real sizes of a checkpoint instead of sizes from the config.
namespace mla::capacity {

/// Bytes of one stored tensor; negative if only its name is known.
struct StoredTensor {
  std::string name{};
  std::int64_t bytes = -1;
};

struct Checkpoint {
  std::string source;
  std::int64_t total = 0;  ///< bytes of all tensors
  std::vector<StoredTensor> tensors;
  bool sizes_known = false;  ///< of each tensor, from the shards' headers
};

/// How the estimate of `model` must be scaled to be that checkpoint: part by part where the sizes of tensors are known, else all
/// parts by one factor. Prediction layers count where the checkpoint has them. Throws kInvalidArgument if the checkpoint has no
/// tensor of the model's layers, or is less than a tenth or more than ten times of what the config implies: another model.
[[nodiscard]] MLA_EXPORT std::vector<WeightScale> weight_scales(const ModelConfig& model,
                                                                const WeightScheme& scheme,
                                                                const Checkpoint& checkpoint);

/// Multiplies the lines of a rank; the rope table is made by the engine and stays.
MLA_EXPORT void apply_scales(WeightPlan& plan, const std::vector<WeightScale>& scales);

}  // namespace mla::capacity
