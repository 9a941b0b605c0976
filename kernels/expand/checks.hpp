// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/params.hpp"
#include "expand/table.hpp"
#include "mla/backend.hpp"

/// Questions that backends with matrix-product operands ask of shapes and arguments.
namespace mla::kernels::expand {

/// Where the expanded form rounds: K, V and P to the type of the query, all else f32.
[[nodiscard]] RoundingProfile rounding(const AttentionShape& shape);
/// Query, output and cache types that tensor cores take without a rounding of their own.
[[nodiscard]] Support check_types(const AttentionShape& shape);
/// Widths that 16-byte pieces divide.
[[nodiscard]] Support check_multiples(const MlaDims& dims);
/// What every kernel of the expanded form asks of a shape: the two above, head space, phase, head widths.
[[nodiscard]] Support check_shape(const AttentionShape& shape, Phase phase);
/// Alignment and type of the weights. Throws kInvalidArgument.
void check_weights(const AttentionShape& shape, const AttentionParams& params);
/// The same for all arguments that are moved in 16-byte pieces.
void check_arguments(const AttentionShape& shape, const AttentionParams& params);
/// Rows of the result that belong to no request.
[[nodiscard]] TailParams tail_of(const AttentionArgs& args, const AttentionParams& params,
                                 std::int32_t width);
/// The narrowest compiled widths that hold a shape's heads; null if none do.
[[nodiscard]] const Widths* widths_for(const MlaDims& dims);
[[nodiscard]] MaskParams mask_of(const Mask& mask);

}  // namespace mla::kernels::expand
