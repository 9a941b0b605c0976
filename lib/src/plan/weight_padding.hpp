// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "mla/capacity.hpp"

/// What engines keep on a GPU beyond the weights that a checkpoint stores.
namespace mla::capacity {

/// How a 4-bit kernel stores the routed experts of a rank when their widths are none it takes.
struct PaddedExperts {
  std::int64_t intermediate = 0, hidden = 0;  ///< after padding, of one rank
  std::int64_t extra_bytes = 0;               ///< on a rank of the stage, beyond what weights_on_rank counts
};

/// Marlin's MXFP4 kernels want a matrix's rows in multiples of 256 and its columns in multiples of 128, so
/// the intermediate width grows to a multiple of 128 and the hidden one to 256. Nothing for other formats and
/// for widths that fit.
[[nodiscard]] MLA_EXPORT std::optional<PaddedExperts> padded_experts(const ModelConfig& model,
                                                                     const WeightScheme& scheme,
                                                                     const Layout& layout,
                                                                     const WeightPlan& counted);

/// What absorbed decoding keeps of kv_b beside the stored matrices, on a rank of a stage: a copy in 16 bits, where the
/// engine makes one (EngineRules::absorbed_copies) and the checkpoint stores fewer.
[[nodiscard]] MLA_EXPORT std::int64_t absorbed_bytes(const ModelConfig& model, const WeightScheme& scheme,
                                                     const Layout& layout, int stage,
                                                     const EngineRules& engine, bool with_mtp);

}  // namespace mla::capacity
