// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

/// The two matrix products everything here is built from. Eigen does the work, in matrix.cpp and nowhere
/// else, so that its headers are compiled once.
namespace mla::reference::detail {

/// A row-major matrix somewhere in memory; `stride` elements from row to row.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
  operator Matrix<const T>() const  // NOLINT: mutable to const is implicit on purpose
      requires(!std::is_const_v<T>) {
    return {data, rows, cols, stride};
  }
};

/// c += a b. The bits of c depend on the values and the sizes alone, not on addresses or strides.
template <class Scalar>
void add_product(const Matrix<const Scalar>& a, const Matrix<const Scalar>& b, const Matrix<Scalar>& c);

/// c += a b^T. As add_product.
template <class Scalar>
void add_product_transposed(const Matrix<const Scalar>& a, const Matrix<const Scalar>& b,
                            const Matrix<Scalar>& c);

}  // namespace mla::reference::detail
