// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "attention.hpp"
#include "block.hpp"

namespace mla::reference::detail {
namespace {

constexpr std::int64_t kChunk = 128;  // keys at a time: the copies of k^2, |v| and v^2 stay in the cache

template <class Scalar>
struct Array {
  Array(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  [[nodiscard]] Matrix<Scalar> matrix() { return {values.data(), rows, cols, cols}; }
  [[nodiscard]] Matrix<const Scalar> matrix() const { return {values.data(), rows, cols, cols}; }
  [[nodiscard]] Scalar* row(std::int64_t i) { return values.data() + i * cols; }
  std::int64_t rows, cols;
  std::vector<Scalar> values;
};

template <class Scalar, class Function>
Array<Scalar> mapped(const Scalar* from, std::int64_t stride, std::int64_t rows, std::int64_t cols,
                     Function function) {
  Array<Scalar> result(rows, cols);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t d = 0; d < cols; ++d) result.row(i)[d] = function(from[i * stride + d]);
  }
  return result;
}

template <class Scalar>
Array<Scalar> products(const Matrix<const Scalar>& a, const Matrix<const Scalar>& b) {
  Array<Scalar> result(a.rows, b.rows);
  add_product_transposed<Scalar>(a, b, result.matrix());
  return result;
}

/// spread_d += sum_j w_j |v_jd - out_d| over n keys; weights are 0 where the row does not look, and what stands there is
/// not touched. The sums of a strip of channels stay in registers.
template <class Scalar>
void add_spread(const Scalar* weight, const Scalar* v, std::int64_t stride, std::int64_t n, const Scalar* out,
                std::int64_t width, Scalar* spread) {
  constexpr std::int64_t kStrip = 16;
  std::int64_t first = 0;
  for (; first + kStrip <= width; first += kStrip) {
    Scalar sum[kStrip], center[kStrip];
    std::copy_n(spread + first, kStrip, sum);
    std::copy_n(out + first, kStrip, center);
    for (std::int64_t j = 0; j < n; ++j) {
      const Scalar w = weight[j];
      if (w == 0) continue;
      const Scalar* row = v + j * stride + first;
      for (std::int64_t d = 0; d < kStrip; ++d) sum[d] += w * std::abs(row[d] - center[d]);
    }
    std::copy_n(sum, kStrip, spread + first);
  }
  for (std::int64_t j = 0; j < n && first < width; ++j) {
    if (weight[j] == 0) continue;
    for (std::int64_t d = first; d < width; ++d)
      spread[d] += weight[j] * std::abs(v[j * stride + d] - out[d]);
  }
}

struct Summary {
  double rms = 0, max = 0;
};
template <class Scalar, class Function>
Summary summary(const Scalar* x, std::int64_t n, Function function) {
  Summary s;
  for (std::int64_t d = 0; d < n; ++d) {
    const double value = function(static_cast<double>(x[d]));
    s.rms += value * value;
    s.max = std::max(s.max, value);
  }
  s.rms = std::sqrt(s.rms / static_cast<double>(n));
  return s;
}

}  // namespace

template <class Scalar>
void collect_stats(const VisibleKeys& visible, const Keys<Scalar>& all_keys, const Heads<Scalar>& heads,
                   RowBlock block, Scalar scale, RowStats* stats) {
  const auto absolute = [](Scalar x) { return std::abs(x); };
  const auto square = [](Scalar x) { return x * x; };
  const BlockInputs<Scalar> in(visible, all_keys, heads, block);
  const Keys<Scalar>& keys = in.keys;
  const std::int64_t rows = in.rows();
  const Matrix<const Scalar> q{in.q.data(), rows, keys.d_qk, keys.d_qk};
  const Array<Scalar> abs_q = mapped(q.data, q.stride, rows, q.cols, absolute);
  Array<Scalar> square_q = mapped(q.data, q.stride, rows, q.cols, square);
  for (std::int64_t r = 0; r < rows && heads.q_terms != nullptr; ++r) {
    const std::int64_t row = block.begin + r;
    const Scalar* terms = heads.q_terms + row / heads.group * heads.q_stride + row % heads.group * keys.d_qk;
    std::transform(terms, terms + keys.d_qk, square_q.row(r), square);
  }
  Array<Scalar> sum_abs(rows, keys.d_v), sum_square(rows, keys.d_v), spread(rows, keys.d_v);
  std::vector<RowStats> found(static_cast<std::size_t>(rows));
  const auto place = [&](std::int64_t r) {
    return std::pair((block.begin + r) / heads.group, (block.begin + r) % heads.group);
  };

  for (std::int64_t first = 0; first < in.columns; first += kChunk) {
    const std::int64_t n = std::min(kChunk, in.columns - first);
    const Scalar* k = keys.k + first * keys.k_stride;
    const Scalar* v = keys.v + first * keys.v_stride;
    const Array<Scalar> abs_k = mapped(k, keys.k_stride, n, keys.d_qk, absolute);
    const Array<Scalar> square_k = mapped(k, keys.k_stride, n, keys.d_qk, square);
    Array<Scalar> dot = products<Scalar>(q, {k, n, keys.d_qk, keys.k_stride});
    Array<Scalar> abs_dot = products<Scalar>(abs_q.matrix(), abs_k.matrix());
    Array<Scalar> square_dot = products<Scalar>(square_q.matrix(), square_k.matrix());
    Array<Scalar> weight(rows, n), square_weight(rows, n);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto [i, g] = place(r);
      const Scalar lse = heads.lse[i * heads.lse_stride + g];
      const Scalar* out = heads.out + i * heads.out_stride + g * keys.d_v;
      RowStats& s = found[static_cast<std::size_t>(r)];
      for (std::int64_t j = 0; j < n; ++j) {
        if (!in.sees[static_cast<std::size_t>(r)].has(first + j)) continue;
        const Scalar score = scale * dot.row(r)[j];
        s.max_abs_score = std::max<double>(s.max_abs_score, std::abs(score));
        s.max_abs_dot = std::max<double>(s.max_abs_dot, abs_dot.row(r)[j]);
        s.max_rms_dot = std::max<double>(s.max_rms_dot, std::sqrt(square_dot.row(r)[j]));
        const Scalar w = std::exp(score - lse);
        weight.row(r)[j] = w;
        // Copies of one key are rounded alike: m errors of the same size and sign, not m that average out.
        const auto c = static_cast<std::size_t>(first + j);
        square_weight.row(r)[j] = w * w * static_cast<Scalar>(in.copies.empty() ? 1 : in.copies[c]);
      }
      add_spread(weight.row(r), v, keys.v_stride, n, out, keys.d_v, spread.row(r));
    }
    const Array<Scalar> abs_v = mapped(v, keys.v_stride, n, keys.d_v, absolute);
    const Array<Scalar> square_v = mapped(v, keys.v_stride, n, keys.d_v, square);
    add_weighted_values<Scalar>(weight.matrix(), abs_v.matrix(), in.sees, first, sum_abs.matrix());
    add_weighted_values<Scalar>(square_weight.matrix(), square_v.matrix(), in.sees, first,
                                sum_square.matrix());
  }

  const auto as_is = [](double x) { return x; };
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto [i, g] = place(r);
    RowStats& s = found[static_cast<std::size_t>(r)];
    const Summary weighted = summary(sum_abs.row(r), keys.d_v, as_is);
    const Summary spreads = summary(spread.row(r), keys.d_v, as_is);
    const Summary rounding = summary(sum_square.row(r), keys.d_v, [](double x) { return std::sqrt(x); });
    s.rms_weighted_v = weighted.rms;
    s.max_weighted_v = weighted.max;
    s.rms_spread = spreads.rms;
    s.max_spread = spreads.max;
    s.rms_p_round = rounding.rms;
    s.max_p_round = rounding.max;
    s.num_keys = in.sees[static_cast<std::size_t>(r)].count();
    stats[i * heads.lse_stride + g] = s;
  }
}

template void collect_stats(const VisibleKeys&, const Keys<double>&, const Heads<double>&, RowBlock, double,
                            RowStats*);
template void collect_stats(const VisibleKeys&, const Keys<float>&, const Heads<float>&, RowBlock, float,
                            RowStats*);

}  // namespace mla::reference::detail
