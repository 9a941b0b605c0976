// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <Eigen/Core>

namespace mla::reference::detail {
namespace {

template <class T>
using Dense = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Map = Eigen::Map<std::conditional_t<std::is_const_v<T>, const Dense<T>, Dense<T>>, Eigen::Unaligned,
                       Eigen::OuterStride<>>;

template <class T>
Map<T> map(const Matrix<T>& m) {
  return {m.data, m.rows, m.cols, Eigen::OuterStride<>(m.stride)};
}

/// Eigen evaluates small products coefficient by coefficient and vectorises from the first aligned address
/// on, so that their bits would depend on where c lies. Its limit is 20.
bool is_small(std::int64_t rows, std::int64_t depth, std::int64_t cols) {
  return rows + depth + cols < 24;
}

}  // namespace

template <class Scalar>
void add_product(const Matrix<const Scalar>& a, const Matrix<const Scalar>& b, const Matrix<Scalar>& c) {
  if (!is_small(c.rows, a.cols, c.cols)) {
    map(c).noalias() += map(a) * map(b);
    return;
  }
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t k = 0; k < a.cols; ++k) {
      const Scalar factor = a.data[i * a.stride + k];
      for (std::int64_t j = 0; j < c.cols; ++j) c.data[i * c.stride + j] += factor * b.data[k * b.stride + j];
    }
  }
}

template <class Scalar>
void add_product_transposed(const Matrix<const Scalar>& a, const Matrix<const Scalar>& b,
                            const Matrix<Scalar>& c) {
  if (!is_small(c.rows, a.cols, c.cols)) {
    map(c).noalias() += map(a) * map(b).transpose();
    return;
  }
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.cols; ++j) {
      Scalar sum = 0;
      for (std::int64_t k = 0; k < a.cols; ++k) sum += a.data[i * a.stride + k] * b.data[j * b.stride + k];
      c.data[i * c.stride + j] += sum;
    }
  }
}

template void add_product(const Matrix<const double>&, const Matrix<const double>&, const Matrix<double>&);
template void add_product(const Matrix<const float>&, const Matrix<const float>&, const Matrix<float>&);
template void add_product_transposed(const Matrix<const double>&, const Matrix<const double>&,
                                     const Matrix<double>&);
template void add_product_transposed(const Matrix<const float>&, const Matrix<const float>&,
                                     const Matrix<float>&);

}  // namespace mla::reference::detail
