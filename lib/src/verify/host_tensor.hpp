// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mla/tensor.hpp"
#include "verify/case.hpp"

namespace mla::verify {

/// A tensor as a backend will see it, in host memory: its type, its strides, and the gaps between rows filled
/// with poison, so that reading or writing a gap shows.
struct HostTensor {
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, 4> extent{1, 1, 1, 1};
  std::array<std::int64_t, 4> stride{0, 0, 0, 0};  ///< elements
  std::vector<std::byte> bytes;

  [[nodiscard]] std::int64_t numel() const noexcept { return extent[0] * extent[1] * extent[2] * extent[3]; }
  /// The same layout over other memory.
  template <class Pointer>
  [[nodiscard]] BasicTensorRef<Pointer> ref(Pointer data) const {
    BasicTensorRef<Pointer> t;
    t.data = data;
    t.dtype = dtype;
    t.rank = rank;
    t.extent = extent;
    t.stride = stride;
    return t;
  }
};

/// An allocated tensor full of `fill` bytes. `gap` elements lie between rows of the last dimension, and one
/// such row more between slices of the first.
[[nodiscard]] HostTensor make_host_tensor(DType dtype, std::span<const std::int64_t> extents,
                                          std::int64_t gap, std::byte fill);

/// Bytes that are NaN in every floating type.
inline constexpr std::byte kNanByte{0xFF};

/// Writes the elements (packed, row-major), each rounded once; gaps are left alone.
void store(HostTensor& tensor, std::span<const double> values);

/// Reads the elements to a packed array.
[[nodiscard]] std::vector<double> load(const HostTensor& tensor);

/// Whether every byte that belongs to no element still is `fill`.
[[nodiscard]] bool gaps_hold(const HostTensor& tensor, std::byte fill);

/// The value that stands for a poison; the caller's type may round it.
[[nodiscard]] double poison_value(Poison poison, DType dtype);

}  // namespace mla::verify
