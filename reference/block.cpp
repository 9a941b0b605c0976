// SPDX-License-Identifier: Apache-2.0
#include "block.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace mla::reference::detail {
namespace {

template <class Scalar>
std::vector<Scalar> copy_rows(const Scalar* from, std::int64_t stride, int width,
                              std::span<const std::int32_t> columns) {
  std::vector<Scalar> rows;
  rows.reserve(columns.size() * static_cast<std::size_t>(width));
  for (const std::int32_t column : columns) {
    const Scalar* row = from + column * stride;
    rows.insert(rows.end(), row, row + width);
  }
  return rows;
}

template <class Scalar>
bool all_finite(const Scalar* x, std::int64_t n) {
  return std::all_of(x, x + n, [](Scalar value) { return std::isfinite(value); });
}

}  // namespace

template <class Scalar>
BlockInputs<Scalar>::BlockInputs(const VisibleKeys& visible, const Keys<Scalar>& all_keys,
                                 const Heads<Scalar>& heads, RowBlock block)
    : keys(all_keys), columns(visible.size()) {
  const std::int64_t group = heads.group;
  q.reserve(static_cast<std::size_t>((block.end - block.begin) * keys.d_qk));
  for (std::int64_t row = block.begin; row < block.end; ++row) {
    const Scalar* from = heads.q + row / group * heads.q_stride + row % group * keys.d_qk;
    q.insert(q.end(), from, from + keys.d_qk);
    if (!visible.indexed()) sees.push_back(visible.columns(row / group));
  }
  if (!visible.indexed()) return;
  const auto picks = visible.picks(block.begin / group);
  columns = static_cast<std::int64_t>(picks.size());
  std::unordered_map<std::int32_t, std::int32_t> named;
  for (const std::int32_t pick : picks) ++named[pick];
  for (const std::int32_t pick : picks) copies.push_back(named[pick]);
  sees.assign(static_cast<std::size_t>(block.end - block.begin), Columns{0, 0, columns});
  picked_k_ = copy_rows(all_keys.k, all_keys.k_stride, all_keys.d_qk, picks);
  keys.k = picked_k_.data();
  keys.k_stride = keys.d_qk;
  if (all_keys.v == all_keys.k && keys.d_v <= keys.d_qk) {
    keys.v = keys.k;
    keys.v_stride = keys.k_stride;
    return;
  }
  picked_v_ = copy_rows(all_keys.v, all_keys.v_stride, all_keys.d_v, picks);
  keys.v = picked_v_.data();
  keys.v_stride = keys.d_v;
}

template <class Scalar>
void add_weighted_values(const Matrix<const Scalar>& weights, const Matrix<const Scalar>& v,
                         const std::vector<Columns>& sees, std::int64_t first_column,
                         const Matrix<Scalar>& out) {
  std::vector<Scalar> product(static_cast<std::size_t>(out.rows * out.cols));
  const Matrix<Scalar> sum{product.data(), out.rows, out.cols, out.cols};
  add_product(weights, v, sum);
  // The product itself tells whether any key was not finite: no second look at every key in the ordinary
  // case.
  if (!all_finite(product.data(), out.rows * out.cols)) {
    std::vector<Scalar> clean(static_cast<std::size_t>(v.rows * v.cols));
    std::vector<std::int64_t> apart;
    for (std::int64_t j = 0; j < v.rows; ++j) {
      const Scalar* row = v.data + j * v.stride;
      if (all_finite(row, v.cols)) {
        std::copy_n(row, v.cols, clean.data() + j * v.cols);
      } else {
        apart.push_back(j);
      }
    }
    std::fill(product.begin(), product.end(), Scalar{0});
    add_product(weights, {clean.data(), v.rows, v.cols, v.cols}, sum);
    for (std::int64_t i = 0; i < out.rows; ++i) {
      for (const std::int64_t j : apart) {
        if (!sees[static_cast<std::size_t>(i)].has(first_column + j)) continue;
        const Scalar weight = weights.data[i * weights.stride + j];
        for (std::int64_t d = 0; d < out.cols; ++d)
          sum.data[i * out.cols + d] += weight * v.data[j * v.stride + d];
      }
    }
  }
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t d = 0; d < out.cols; ++d) out.data[i * out.stride + d] += product[i * out.cols + d];
  }
}

template struct BlockInputs<double>;
template struct BlockInputs<float>;
template void add_weighted_values(const Matrix<const double>&, const Matrix<const double>&,
                                  const std::vector<Columns>&, std::int64_t, const Matrix<double>&);
template void add_weighted_values(const Matrix<const float>&, const Matrix<const float>&,
                                  const std::vector<Columns>&, std::int64_t, const Matrix<float>&);

}  // namespace mla::reference::detail
