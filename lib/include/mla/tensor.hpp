// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "mla/dtype.hpp"

namespace mla {

/// A typed, non-owning, strided view of `Rank` dimensions. Strides are in elements and 64-bit: a pool of 3.8
/// million 576-wide rows passes 2^31 elements. data == nullptr means "absent".
template <class T, std::size_t Rank>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, Rank> extent{};
  std::array<std::int64_t, Rank> stride{};

  View() = default;
  /// Packed, row-major.
  View(T* pointer, std::array<std::int64_t, Rank> extents) : data(pointer), extent(extents) {
    std::int64_t step = 1;
    for (std::size_t i = Rank; i-- > 0;) {
      stride[i] = step;
      step *= extent[i];
    }
  }
  View(T* pointer, std::array<std::int64_t, Rank> extents, std::array<std::int64_t, Rank> strides)
      : data(pointer), extent(extents), stride(strides) {}

  [[nodiscard]] explicit operator bool() const noexcept { return data != nullptr; }
  [[nodiscard]] T& operator()(std::int64_t i) const noexcept requires(Rank == 1) {
    return data[i * stride[0]];
  }
  [[nodiscard]] T& operator()(std::int64_t i, std::int64_t j) const noexcept requires(Rank == 2) {
    return data[i * stride[0] + j * stride[1]];
  }
};

/// A tensor whose element type is known at run time, up to four dimensions; unused extents are 1.
template <class Pointer>
struct BasicTensorRef {
  Pointer data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, 4> extent{1, 1, 1, 1};
  std::array<std::int64_t, 4> stride{0, 0, 0, 0};  // in elements

  BasicTensorRef() = default;
  /// Packed, row-major.
  BasicTensorRef(Pointer pointer, DType type, std::initializer_list<std::int64_t> extents)
      : data(pointer), dtype(type), rank(static_cast<int>(extents.size())) {
    std::size_t i = 0;
    for (const std::int64_t e : extents) extent[i++] = e;
    std::int64_t step = 1;
    while (i-- > 0) {
      stride[i] = step;
      step *= extent[i];
    }
  }
  template <class Other>
  BasicTensorRef(const BasicTensorRef<Other>& other)  // NOLINT: mutable to const is implicit on purpose
      : data(other.data), dtype(other.dtype), rank(other.rank), extent(other.extent), stride(other.stride) {}

  [[nodiscard]] explicit operator bool() const noexcept { return data != nullptr; }
  [[nodiscard]] std::int64_t offset(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) const noexcept {
    return i * stride[0] + j * stride[1] + k * stride[2];
  }
};

using TensorRef = BasicTensorRef<void*>;
using ConstTensorRef = BasicTensorRef<const void*>;

}  // namespace mla
