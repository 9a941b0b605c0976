// SPDX-License-Identifier: Apache-2.0
#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "block.hpp"
#include "matrix.hpp"
#include "parallel.hpp"

namespace mla::reference::detail {
namespace {

template <class Scalar>
constexpr Scalar kMinusInfinity = -std::numeric_limits<Scalar>::infinity();

/// Two contiguous pieces of the gathered keys, side by side in the matrix of scores: all that any row of a
/// block sees within one split. Between them may lie keys that only rows of other blocks see.
struct Pieces {
  Columns keys;  // [0 .. head_end) is meant from `begin`
  std::int64_t begin = 0;
  [[nodiscard]] std::int64_t head() const { return keys.head_end - begin; }
  [[nodiscard]] std::int64_t tail() const { return keys.tail_end - keys.tail_begin; }
  [[nodiscard]] std::int64_t size() const { return head() + tail(); }
  /// From a column of the gathered keys to a column of the scores.
  [[nodiscard]] std::int64_t local(std::int64_t column) const {
    if (column <= keys.head_end) return std::max<std::int64_t>(0, column - begin);
    return head() + std::max<std::int64_t>(0, column - keys.tail_begin);
  }
};

Pieces pieces_of(const std::vector<Columns>& sees, std::int64_t begin, std::int64_t end) {
  Columns all{0, end, 0};
  for (const Columns& row : sees) {
    if (row.count() == 0) continue;
    all.head_end = std::max(all.head_end, row.head_end);
    all.tail_begin = std::min(all.tail_begin, row.tail_begin);
    all.tail_end = std::max(all.tail_end, row.tail_end);
  }
  all.head_end = std::clamp(all.head_end, begin, end);
  all.tail_begin = std::clamp(all.tail_begin, all.head_end, end);
  all.tail_end = std::clamp(all.tail_end, all.tail_begin, end);
  return {all, begin};
}

/// What a row sees, in columns of the scores.
Columns local_columns(const Columns& row, const Pieces& pieces, std::int64_t begin, std::int64_t end) {
  if (row.count() == 0) return {};
  const auto local = [&](std::int64_t column) { return pieces.local(std::clamp(column, begin, end)); };
  return {local(row.head_end), local(row.tail_begin), local(row.tail_end)};
}

template <class Scalar>
Scalar sum_of(const Scalar* x, std::int64_t n) {
  // Pairwise: the error of a running float sum over 100 k keys would be visible in the LSE.
  if (n <= 32) {
    Scalar sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  return sum_of(x, n / 2) + sum_of(x + n / 2, n - n / 2);
}

/// Turns the raw dot products of one row into exp(scale * dot - max), 0 where the row does not look. Returns
/// their sum and the maximum.
template <class Scalar>
struct RowSum {
  Scalar sum, max;
};
template <class Scalar>
RowSum<Scalar> exponentiate(Scalar* row, std::int64_t size, const Columns& sees, Scalar scale) {
  Scalar max = kMinusInfinity<Scalar>;
  const auto each_piece = [&](const auto& visit) {
    visit(0, sees.head_end);
    visit(sees.tail_begin, sees.tail_end);
  };
  each_piece([&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      row[j] *= scale;
      if (row[j] > max) max = row[j];  // a NaN is not the maximum; it shows in the sum
    }
  });
  const Scalar shift = max == kMinusInfinity<Scalar> ? Scalar{0} : max;
  Scalar sum = 0;
  each_piece([&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) row[j] = std::exp(row[j] - shift);
    sum += sum_of(row + begin, end - begin);
  });
  // The products computed for other rows' sake.
  std::fill(row + sees.head_end, row + sees.tail_begin, Scalar{0});
  std::fill(row + sees.tail_end, row + size, Scalar{0});
  return {sum, shift};
}

/// One softmax of the block over the gathered keys [begin, end).
template <class Scalar>
void attend_part(const BlockInputs<Scalar>& in, std::int64_t begin, std::int64_t end, Scalar scale,
                 Scalar* out, Scalar* lse) {
  const Keys<Scalar>& keys = in.keys;
  const std::int64_t rows = in.rows();
  const Pieces pieces = pieces_of(in.sees, begin, end);
  const std::int64_t size = pieces.size();
  std::vector<Scalar> scores(static_cast<std::size_t>(rows * size));
  const Matrix<const Scalar> q{in.q.data(), rows, keys.d_qk, keys.d_qk};
  const auto part_of = [](const Scalar* x, std::int64_t stride, std::int64_t first, std::int64_t count,
                          int width) {
    return Matrix<const Scalar>{x + first * stride, count, width, stride};
  };
  const auto scores_of = [&](std::int64_t first, std::int64_t count) {
    return Matrix<Scalar>{scores.data() + first, rows, count, size};
  };
  add_product_transposed(q, part_of(keys.k, keys.k_stride, begin, pieces.head(), keys.d_qk),
                         scores_of(0, pieces.head()));
  add_product_transposed(q, part_of(keys.k, keys.k_stride, pieces.keys.tail_begin, pieces.tail(), keys.d_qk),
                         scores_of(pieces.head(), pieces.tail()));

  std::vector<Columns> sees(static_cast<std::size_t>(rows));
  std::vector<Scalar> sums(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto r = static_cast<std::size_t>(i);
    sees[r] = local_columns(in.sees[r], pieces, begin, end);
    const RowSum<Scalar> row = exponentiate(scores.data() + i * size, size, sees[r], scale);
    sums[r] = row.sum;
    lse[i] = row.max + std::log(row.sum);  // no key: log 0
  }

  std::fill(out, out + rows * keys.d_v, Scalar{0});
  const Matrix<Scalar> product{out, rows, keys.d_v, keys.d_v};
  add_weighted_values<Scalar>(scores_of(0, pieces.head()),
                              part_of(keys.v, keys.v_stride, begin, pieces.head(), keys.d_v), sees, 0,
                              product);
  add_weighted_values<Scalar>(scores_of(pieces.head(), pieces.tail()),
                              part_of(keys.v, keys.v_stride, pieces.keys.tail_begin, pieces.tail(), keys.d_v),
                              sees, pieces.head(), product);
  for (std::int64_t i = 0; i < rows; ++i) {
    const Scalar sum = sums[static_cast<std::size_t>(i)];
    for (std::int64_t d = 0; d < keys.d_v; ++d) {
      Scalar& element = out[i * keys.d_v + d];
      element = sum == 0 ? Scalar{0} : element / sum;
    }
  }
}

}  // namespace

template <class Scalar>
void attend(const VisibleKeys& visible, const Keys<Scalar>& keys, const Heads<Scalar>& heads, RowBlock block,
            Scalar scale, int num_splits) {
  const BlockInputs<Scalar> in(visible, keys, heads, block);
  const std::int64_t rows = in.rows();
  const std::int64_t width = rows * keys.d_v;
  std::vector<Scalar> out(static_cast<std::size_t>(width));
  std::vector<Scalar> lse(static_cast<std::size_t>(rows));
  if (num_splits == 1) {
    attend_part(in, 0, in.columns, scale, out.data(), lse.data());
  } else {
    std::vector<Scalar> part_out(static_cast<std::size_t>(num_splits * width));
    std::vector<Scalar> part_lse(static_cast<std::size_t>(num_splits * rows));
    for (std::int64_t part = 0; part < num_splits; ++part) {
      attend_part(in, in.columns * part / num_splits, in.columns * (part + 1) / num_splits, scale,
                  part_out.data() + part * width, part_lse.data() + part * rows);
    }
    merge_parts<Scalar>(num_splits, rows, keys.d_v, part_out.data(), part_lse.data(), out.data(), lse.data());
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t i = (block.begin + r) / heads.group;
    const std::int64_t g = (block.begin + r) % heads.group;
    std::copy_n(out.data() + r * keys.d_v, keys.d_v, heads.out + i * heads.out_stride + g * keys.d_v);
    heads.lse[i * heads.lse_stride + g] = lse[static_cast<std::size_t>(r)];
  }
}

template <class Scalar>
Result<Scalar> grouped_attention(const GroupedCall<Scalar>& call) {
  struct Task {
    const BatchEntry* entry;
    int kv_head;
    RowBlock block;
  };
  const int group = call.heads / call.kv_heads;
  std::vector<Task> tasks;
  for (const BatchEntry& entry : call.batch.entries) {
    for (const RowBlock block : row_blocks(entry.visible, group)) {
      for (int kv_head = 0; kv_head < call.kv_heads; ++kv_head) tasks.push_back({&entry, kv_head, block});
    }
  }
  Result<Scalar> result = make_result<Scalar>(call.batch, call.heads, call.d_v, call.row_stats);
  parallel_for(static_cast<std::int64_t>(tasks.size()), call.threads, [&](std::int64_t t) {
    const auto& [entry, kv_head, block] = tasks[static_cast<std::size_t>(t)];
    const Keys<Scalar> keys{call.k + entry->first_row * call.k_row_stride + kv_head * call.k_head_stride,
                            call.k_row_stride,
                            call.d_qk,
                            call.v + entry->first_row * call.v_row_stride + kv_head * call.v_head_stride,
                            call.v_row_stride,
                            call.d_v};
    const std::int64_t row = entry->first_token * call.heads + kv_head * group;
    const std::int64_t heads = call.heads;
    const Heads<Scalar> queries{group,
                                call.q + row * call.d_qk,
                                heads * call.d_qk,
                                result.out.data() + row * call.d_v,
                                heads * call.d_v,
                                result.lse.data() + row,
                                heads};
    attend(entry->visible, keys, queries, block, call.scale, call.num_splits);
    if (call.row_stats) {
      collect_stats(entry->visible, keys, queries, block, call.scale, result.stats.data() + row);
    }
  });
  return result;
}

template void attend(const VisibleKeys&, const Keys<double>&, const Heads<double>&, RowBlock, double, int);
template void attend(const VisibleKeys&, const Keys<float>&, const Heads<float>&, RowBlock, float, int);
template Result<double> grouped_attention(const GroupedCall<double>&);
template Result<float> grouped_attention(const GroupedCall<float>&);

}  // namespace mla::reference::detail
