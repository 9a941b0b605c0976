// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace mla {
template <class T, std::size_t Rank>
struct View;  // <mla/tensor.hpp>, which device code need not read
}

namespace mla::kernels {

/// One- and two-dimensional views as kernels take them: constexpr, so callable on both sides.
template <class T>
struct Strided {
  T* data = nullptr;
  std::int64_t stride = 1;
  Strided() = default;
  constexpr Strided(T* pointer, std::int64_t step) : data(pointer), stride(step) {}
  Strided(const View<T, 1>& view) : data(view.data), stride(view.stride[0]) {}  // NOLINT: implicit on purpose
  constexpr T& operator[](std::int64_t i) const { return data[i * stride]; }
  constexpr explicit operator bool() const { return data != nullptr; }
};

}  // namespace mla::kernels
