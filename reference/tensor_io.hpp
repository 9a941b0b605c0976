// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "input.hpp"
#include "mla/tensor.hpp"

/// Typed, strided tensors in and out of packed arrays of Scalar.
namespace mla::reference::detail {

/// The first d0 x d1 x d2 elements of a rank-3 tensor of f64, f32, bf16 or f16, packed; the tensor's own
/// memory where that is packed Scalar already.
template <class Scalar>
[[nodiscard]] Input<Scalar> load_tensor(const ConstTensorRef& tensor, std::int64_t d0, std::int64_t d1,
                                        std::int64_t d2, int threads);

/// Writes packed values [rows, d1, d2] to rows `first` and up of a tensor of rank 2 (then d2 is 1) or 3, each
/// rounded once to its type.
template <class Scalar>
void store_tensor(const std::vector<Scalar>& values, std::int64_t first, std::int64_t d1, std::int64_t d2,
                  const TensorRef& tensor, int threads);

}  // namespace mla::reference::detail
