// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params.hpp"
#include "mla/backend.hpp"
#include "mla/shape.hpp"

/// From a call's shape and arguments to what kernels take, and the checks on the way; host code only.
namespace mla::kernels {

/// Checks the arguments against the shape (types, widths, missing pointers, scale) and packs them. Throws
/// kInvalidArgument naming the argument.
[[nodiscard]] AttentionParams make_params(const AttentionShape& shape, const AttentionArgs& args);

/// For kernels that copy 16 bytes at a time: addresses and strides of q, out and cache are multiples of 16 bytes,
/// last strides 1. Throws kUnsupported naming the tensor.
void check_alignment(const AttentionParams& params, const char* backend);

/// A stride of the cache in bytes for kernels that count it in 32 bits. Throws kUnsupported naming `what`.
[[nodiscard]] std::uint32_t narrow_stride(const char* backend, std::int64_t stride, const char* what);

/// What every plan() checks first. Throws kUnsupported with the sentence of supports(), kDevice if `device`
/// is only described and so nothing can run on it.
void require(const Backend& backend, const AttentionShape& shape, const Device& device);

/// The plan that belongs to a backend's run(): throws kInvalidArgument if another backend made it, or if the
/// workspace is smaller than the plan wants.
template <class OwnPlan>
[[nodiscard]] const OwnPlan& own_plan(const Plan& plan, std::size_t workspace_bytes, const char* backend);

[[noreturn]] void throw_foreign_plan(const char* backend);
void check_workspace(std::size_t have, std::size_t need, const char* backend);

template <class OwnPlan>
const OwnPlan& own_plan(const Plan& plan, std::size_t workspace_bytes, const char* backend) {
  const auto* own = dynamic_cast<const OwnPlan*>(&plan);
  if (own == nullptr) throw_foreign_plan(backend);
  check_workspace(workspace_bytes, plan.workspace_bytes(), backend);
  return *own;
}

}  // namespace mla::kernels
