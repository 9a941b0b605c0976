// SPDX-License-Identifier: Apache-2.0
#include "layer_math.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check.hpp"
#include "matrix.hpp"
#include "mla/error.hpp"
#include "parallel.hpp"

namespace mla::reference::detail {

void require_rope(const RopeTable& table, std::int64_t positions, std::int64_t width) {
  if (table.half * std::int64_t{2} != width) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the rotary table is for {} channels, but {} are rotated",
                            table.half * std::int64_t{2}, width));
  }
  require_size("the rotary table's cos", table.cos.size(), "[positions, R/2]", {positions, table.half});
  require_size("the rotary table's sin", table.sin.size(), "[positions, R/2]", {positions, table.half});
}

template <class Scalar>
Rotation<Scalar>::Rotation(const RopeTable& table, RopeLayout input, RopeLayout output)
    : half_(table.half),
      input_(input),
      output_(output),
      cos_(table.cos.begin(), table.cos.end()),
      sin_(table.sin.begin(), table.sin.end()) {}

template <class Scalar>
void Rotation<Scalar>::apply(std::int64_t position, Scalar* x) const {
  const auto first = [this](RopeLayout layout, std::int64_t i) {
    return layout == RopeLayout::kInterleaved ? 2 * i : i;
  };
  const auto second = [this](RopeLayout layout, std::int64_t i) {
    return layout == RopeLayout::kInterleaved ? 2 * i + 1 : i + half_;
  };
  const std::vector<Scalar> from(x, x + 2 * half_);
  for (std::int64_t i = 0; i < half_; ++i) {
    const auto angle = static_cast<std::size_t>(position * half_ + i);
    const Scalar a = from[static_cast<std::size_t>(first(input_, i))];
    const Scalar b = from[static_cast<std::size_t>(second(input_, i))];
    x[first(output_, i)] = a * cos_[angle] - b * sin_[angle];
    x[second(output_, i)] = a * sin_[angle] + b * cos_[angle];
  }
}

template <class Scalar>
std::vector<Scalar> linear(const Scalar* x, std::int64_t rows, std::int64_t in, const Scalar* weight,
                           std::int64_t out, std::span<const double> bias, int threads) {
  constexpr std::int64_t kPiece = 256;  // outputs a task
  std::vector<Scalar> y(static_cast<std::size_t>(rows * out));
  parallel_for((out + kPiece - 1) / kPiece, threads, [&](std::int64_t task) {
    const std::int64_t first = task * kPiece, count = std::min(kPiece, out - first);
    add_product_transposed<Scalar>({x, rows, in, in}, {weight + first * in, count, in, in},
                                   {y.data() + first, rows, count, out});
    if (bias.empty()) return;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = first; o < first + count; ++o) {
        y[static_cast<std::size_t>(r * out + o)] += static_cast<Scalar>(bias[static_cast<std::size_t>(o)]);
      }
    }
  });
  return y;
}

template <class Scalar>
void normalize_rows(Scalar* x, std::int64_t rows, std::int64_t x_stride, std::span<const double> weight,
                    double eps) {
  const auto width = static_cast<Scalar>(weight.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    Scalar* row = x + r * x_stride;
    Scalar squares = 0;
    for (std::size_t d = 0; d < weight.size(); ++d) squares += row[d] * row[d];
    const Scalar factor = Scalar{1} / std::sqrt(squares / width + static_cast<Scalar>(eps));
    for (std::size_t d = 0; d < weight.size(); ++d) row[d] = row[d] * factor * static_cast<Scalar>(weight[d]);
  }
}

void require_config(const LayerConfig& config) {
  constexpr int kWidest = 1 << 20;
  validate(config.dims);
  require_between("hidden_size", config.hidden_size, 1, kWidest);
  if (config.q_lora_rank) require_between("q_lora_rank", *config.q_lora_rank, 1, kWidest);
  for (const double eps : {config.q_norm_eps, config.kv_norm_eps}) {
    if (!std::isfinite(eps) || eps < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the epsilon of a norm is {}, but must be finite and >= 0", eps));
    }
  }
}

std::int64_t token_count(const LayerConfig& config, std::span<const double> hidden) {
  require_config(config);
  const std::int64_t tokens = static_cast<std::int64_t>(hidden.size()) / config.hidden_size;
  require_size("hidden", hidden.size(), "[S, hidden]", {tokens, config.hidden_size});
  return tokens;
}

#define MLA_INSTANTIATE(Scalar)                                                                 \
  template class Rotation<Scalar>;                                                              \
  template std::vector<Scalar> linear(const Scalar*, std::int64_t, std::int64_t, const Scalar*, \
                                      std::int64_t, std::span<const double>, int);              \
  template void normalize_rows(Scalar*, std::int64_t, std::int64_t, std::span<const double>, double);
MLA_INSTANTIATE(double)
MLA_INSTANTIATE(float)
#undef MLA_INSTANTIATE

}  // namespace mla::reference::detail
