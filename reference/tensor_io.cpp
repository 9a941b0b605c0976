// SPDX-License-Identifier: Apache-2.0
#include "tensor_io.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "mla/error.hpp"
#include "parallel.hpp"

namespace mla::reference::detail {
namespace {

/// n elements of type Stored, `stride` apart, through `decode`. By memcpy: a mapped tensor need not be
/// aligned.
template <class Stored, class Scalar, class Decode>
void load_run(const void* data, std::int64_t offset, std::int64_t stride, std::int64_t n, Scalar* to,
              Decode decode) {
  const auto* bytes = static_cast<const std::byte*>(data);
  for (std::int64_t i = 0; i < n; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + (offset + i * stride) * static_cast<std::int64_t>(sizeof(Stored)),
                sizeof(Stored));
    to[i] = static_cast<Scalar>(decode(stored));
  }
}

/// One switch a run, not one an element: the weights of one call are tens of millions of elements.
template <class Scalar>
void load_run(const void* data, DType dtype, std::int64_t offset, std::int64_t stride, std::int64_t n,
              Scalar* to) {
  const auto as_is = [](auto x) { return x; };
  switch (dtype) {
    case DType::kF64:
      return load_run<double>(data, offset, stride, n, to, as_is);
    case DType::kF32:
      return load_run<float>(data, offset, stride, n, to, as_is);
    case DType::kBF16:  // the upper half of a float
      return load_run<std::uint16_t>(data, offset, stride, n, to, [](std::uint16_t bits) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
      });
    case DType::kF16:
      return load_run<std::uint16_t>(data, offset, stride, n, to, f16_to_float);
    default:
      throw Error(ErrorCode::kInternal, fmt::format("a tensor of {} got past the checks", name_of(dtype)));
  }
}

template <class Scalar>
bool holds_packed(const ConstTensorRef& tensor, std::int64_t d1, std::int64_t d2) {
  constexpr DType kType = std::is_same_v<Scalar, double> ? DType::kF64 : DType::kF32;
  return tensor.dtype == kType && tensor.stride[2] == 1 && tensor.stride[1] == d2 &&
         tensor.stride[0] == d1 * d2 && reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(Scalar) == 0;
}

}  // namespace

template <class Scalar>
Input<Scalar> load_tensor(const ConstTensorRef& tensor, std::int64_t d0, std::int64_t d1, std::int64_t d2,
                          int threads) {
  if (holds_packed<Scalar>(tensor, d1, d2)) {
    return Input<Scalar>(
        std::span(static_cast<const Scalar*>(tensor.data), static_cast<std::size_t>(d0 * d1 * d2)));
  }
  std::vector<Scalar> values(static_cast<std::size_t>(d0 * d1 * d2));
  parallel_for(d0, threads, [&](std::int64_t i) {
    for (std::int64_t j = 0; j < d1; ++j) {
      load_run(tensor.data, tensor.dtype, tensor.offset(i, j), tensor.stride[2], d2,
               values.data() + (i * d1 + j) * d2);
    }
  });
  return Input<Scalar>(std::move(values));
}

template <class Scalar>
void store_tensor(const std::vector<Scalar>& values, std::int64_t first, std::int64_t d1, std::int64_t d2,
                  const TensorRef& tensor, int threads) {
  const std::int64_t row = d1 * d2;
  parallel_for(static_cast<std::int64_t>(values.size()) / row, threads, [&](std::int64_t i) {
    for (std::int64_t j = 0; j < d1; ++j) {
      for (std::int64_t k = 0; k < d2; ++k) {
        store_element(tensor.data, tensor.dtype, tensor.offset(first + i, j, k),
                      values[static_cast<std::size_t>(i * row + j * d2 + k)]);
      }
    }
  });
}

template Input<double> load_tensor(const ConstTensorRef&, std::int64_t, std::int64_t, std::int64_t, int);
template Input<float> load_tensor(const ConstTensorRef&, std::int64_t, std::int64_t, std::int64_t, int);
template void store_tensor(const std::vector<double>&, std::int64_t, std::int64_t, std::int64_t,
                           const TensorRef&, int);
template void store_tensor(const std::vector<float>&, std::int64_t, std::int64_t, std::int64_t,
                           const TensorRef&, int);

}  // namespace mla::reference::detail
