// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "mla/dtype.hpp"
#include "mla/tensor.hpp"

/// Checks of arguments of the device operations: each throws kInvalidArgument with a sentence naming the
/// argument, its value and what is allowed.
namespace mla::kernels {

[[noreturn]] void refuse(const std::string& sentence);

/// A tensor of that rank whose innermost stride is 1, of one of the types (any if none are given).
void require_tensor(const ConstTensorRef& tensor, const char* name,
                    std::initializer_list<std::int64_t> extents, std::initializer_list<DType> types);
/// At least that many elements.
template <class T>
void require_size(const View<T, 1>& view, const char* name, std::int64_t size);
void require_size(bool present, std::int64_t extent, const char* name, std::int64_t size);

template <class T>
void require_size(const View<T, 1>& view, const char* name, std::int64_t size) {
  require_size(static_cast<bool>(view), view.extent[0], name, size);
}

/// An extent that require_tensor does not look at.
inline constexpr std::int64_t kAnyExtent = -1;

/// Address and strides (in bytes) are multiples of `bytes`.
[[nodiscard]] bool aligned(const void* data, std::initializer_list<std::int64_t> strides_bytes,
                           std::int64_t bytes);

}  // namespace mla::kernels
