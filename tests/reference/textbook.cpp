// SPDX-License-Identifier: Apache-2.0
#include "textbook.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "mla/random.hpp"

namespace textbook {
namespace {

using Real = long double;

/// One query over listed keys. k(j, d) and v(j, d) read a key.
template <class K, class V>
void attend(std::span<const double> q, const std::vector<std::int64_t>& keys, K k, V v, int d_v, Real scale,
            std::span<double> out, double& lse, RowStats& stats) {
  std::fill(out.begin(), out.end(), 0.0);
  lse = -std::numeric_limits<double>::infinity();
  stats = {};
  stats.num_keys = static_cast<std::int64_t>(keys.size());
  if (keys.empty()) return;
  std::vector<Real> score;
  for (const std::int64_t j : keys) {
    Real dot = 0, absolute = 0, squares = 0;
    for (std::size_t d = 0; d < q.size(); ++d) {
      const Real term = static_cast<Real>(q[d]) * k(j, static_cast<int>(d));
      dot += term;
      absolute += std::abs(term);
      squares += term * term;
    }
    score.push_back(scale * dot);
    stats.max_abs_dot = std::max(stats.max_abs_dot, static_cast<double>(absolute));
    stats.max_rms_dot = std::max(stats.max_rms_dot, static_cast<double>(std::sqrt(squares)));
    stats.max_abs_score = std::max(stats.max_abs_score, static_cast<double>(std::abs(scale * dot)));
  }
  const Real max = *std::max_element(score.begin(), score.end());
  Real sum = 0;
  for (Real& s : score) sum += s = std::exp(s - max);
  lse = static_cast<double>(max + std::log(sum));
  Real weighted_squares = 0, spread_squares = 0, round_squares = 0;
  for (int d = 0; d < d_v; ++d) {
    Real o = 0, weighted = 0, rounded = 0, spread = 0;
    std::map<std::int64_t, Real> of_key;  // one that is listed twice is rounded alike twice
    for (std::size_t x = 0; x < keys.size(); ++x) {
      const Real term = score[x] / sum * v(keys[x], d);
      o += term;
      weighted += std::abs(term);
      of_key[keys[x]] += term;
    }
    for (const auto& [key, term] : of_key) rounded += term * term;
    for (std::size_t x = 0; x < keys.size(); ++x) spread += score[x] / sum * std::abs(v(keys[x], d) - o);
    out[static_cast<std::size_t>(d)] = static_cast<double>(o);
    weighted_squares += weighted * weighted;
    spread_squares += spread * spread;
    round_squares += rounded;
    stats.max_weighted_v = std::max(stats.max_weighted_v, static_cast<double>(weighted));
    stats.max_spread = std::max(stats.max_spread, static_cast<double>(spread));
    stats.max_p_round = std::max(stats.max_p_round, static_cast<double>(std::sqrt(rounded)));
  }
  stats.rms_weighted_v = static_cast<double>(std::sqrt(weighted_squares / d_v));
  stats.rms_spread = static_cast<double>(std::sqrt(spread_squares / d_v));
  stats.rms_p_round = static_cast<double>(std::sqrt(round_squares / d_v));
}

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

std::vector<std::int64_t> keys_of(const mla::Request& request, std::int64_t i, const Visibility& visible,
                                  std::int64_t token) {
  std::vector<std::int64_t> keys;
  if (visible.topk > 0) {
    for (std::int64_t x = 0; x < visible.topk; ++x) {
      const std::int32_t position = visible.token_index[at(token * visible.topk + x)];
      if (position >= 0 && position < request.kv_len) keys.push_back(position);
    }
    return keys;
  }
  const std::int64_t p = std::int64_t{request.kv_len} - request.q_len + i;
  for (std::int64_t j = 0; j < request.kv_len; ++j) {
    const bool past = j <= p;
    const bool near = !visible.mask.window || p - j < *visible.mask.window || j < visible.mask.sink;
    if (!visible.mask.causal || (past && near)) keys.push_back(j);
  }
  return keys;
}

AttentionOutput mha(const MhaProblem& problem) {
  AttentionOutput result;
  const std::int64_t H = problem.num_heads, Hkv = problem.num_kv_heads, D = problem.d_qk, V = problem.d_v;
  std::int64_t token = 0, first_key = 0;
  for (const mla::Request& request : problem.batch) {
    for (std::int64_t i = 0; i < request.q_len; ++i, ++token) {
      const auto keys = keys_of(request, i, problem.visible, token);
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t g = h / (H / Hkv);
        const auto k = [&](std::int64_t j, std::int64_t d) {
          return problem.k[at(((first_key + j) * Hkv + g) * D + d)];
        };
        const auto v = [&](std::int64_t j, std::int64_t d) {
          return problem.v.empty() ? k(j, d) : problem.v[at(((first_key + j) * Hkv + g) * V + d)];
        };
        std::vector<double> out(at(V));
        double lse = 0;
        RowStats stats;
        attend(problem.q.subspan(at((token * H + h) * D), at(D)), keys, k, v, problem.d_v,
               problem.softmax_scale, out, lse, stats);
        result.out.insert(result.out.end(), out.begin(), out.end());
        result.lse.push_back(lse);
        result.stats.push_back(stats);
      }
    }
    first_key += request.kv_len;
  }
  return result;
}

AttentionOutput mla(const MlaProblem& problem) {
  const auto& [H, L, R, P, V] = problem.dims;
  const std::int64_t rows = static_cast<std::int64_t>(problem.latent.size()) / (L + R);
  std::vector<double> k, v;
  const auto up = [&](std::span<const double> w, std::int64_t row, std::int64_t j) {
    Real sum = 0;
    for (std::int64_t l = 0; l < L; ++l) {
      sum += static_cast<Real>(w[at(row * L + l)]) * problem.latent[at(j * (L + R) + l)];
    }
    return static_cast<double>(sum);
  };
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t p = 0; p < P; ++p) k.push_back(up(problem.w_uk, h * P + p, j));
      for (std::int64_t r = 0; r < R; ++r) k.push_back(problem.latent[at(j * (L + R) + L + r)]);
      for (std::int64_t d = 0; d < V; ++d) v.push_back(up(problem.w_uv, h * V + d, j));
    }
  }
  return mha({problem.batch, H, H, P + R, V, problem.q, k, v, problem.visible, problem.softmax_scale});
}

double relative_error(std::span<const double> got, std::span<const double> want) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (got.size() != want.size()) return kWrong;
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(want[i]) != std::isfinite(got[i])) return kWrong;
    if (!std::isfinite(want[i])) {
      if (!(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i])) return kWrong;
      continue;
    }
    error = std::max(error, std::abs(got[i] - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  return error == 0 ? 0 : error / largest;
}

std::vector<double> normals(std::int64_t count, std::uint64_t stream, double sigma) {
  const mla::CounterRng rng(2025, stream);
  std::vector<double> values(at(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sigma * rng.normal(i);
  return values;
}

std::int64_t MlaData::tokens() const {
  std::int64_t n = 0;
  for (const mla::Request& request : batch) n += request.q_len;
  return n;
}

std::int64_t MlaData::keys() const {
  std::int64_t n = 0;
  for (const mla::Request& request : batch) n += request.kv_len;
  return n;
}

MlaData make_mla(const mla::MlaDims& dims, std::vector<mla::Request> batch, const Visibility& visible,
                 std::uint64_t seed) {
  MlaData data;
  data.dims = dims;
  data.batch = std::move(batch);
  data.visible = visible;
  const auto& [H, L, R, P, V] = dims;
  data.q = normals(data.tokens() * H * (P + R), seed * 16 + 0);
  data.latent = normals(data.keys() * (L + R), seed * 16 + 1);
  data.w_uk = normals(std::int64_t{H} * P * L, seed * 16 + 2, 1.0 / std::sqrt(static_cast<double>(L)));
  data.w_uv = normals(std::int64_t{H} * V * L, seed * 16 + 3, 1.0 / std::sqrt(static_cast<double>(L)));
  data.scale = 1.3 / std::sqrt(static_cast<double>(P + R));
  if (visible.topk > 0) data.index = random_index(data.batch, visible.topk, seed);
  return data;
}

std::vector<mla::Request> awkward_batch() {
  return {{1, 1}, {1, 0}, {3, 7}, {0, 5}, {2, 0}, {5, 3}, {1, 70}, {40, 40}, {0, 0}, {4, 131}, {1, 2}};
}

std::vector<NamedVisibility> visibilities() {
  const auto masked = [](bool causal, std::optional<std::int32_t> window, std::int32_t sink) {
    return Visibility{{causal, window, sink}, {}, 0};
  };
  return {{"causal", masked(true, {}, 0)},          {"full", masked(false, {}, 0)},
          {"window1", masked(true, 1, 0)},          {"window6", masked(true, 6, 0)},
          {"window6sink3", masked(true, 6, 3)},     {"window4sink9", masked(true, 4, 9)},
          {"window200sink4", masked(true, 200, 4)}, {"topk9", {{}, {}, 9}}};
}

std::vector<std::int32_t> random_index(std::span<const mla::Request> batch, std::int32_t topk,
                                       std::uint64_t seed) {
  const mla::CounterRng rng(seed, 99);
  std::vector<std::int32_t> index;
  std::int64_t token = 0;
  for (const mla::Request& request : batch) {
    for (std::int32_t i = 0; i < request.q_len; ++i, ++token) {
      for (std::int32_t x = 0; x < topk; ++x) {
        const auto draw = rng.between(index.size(), -1, request.kv_len + 1);  // a few too large
        index.push_back(token % 7 == 6 ? -1 : static_cast<std::int32_t>(draw));
      }
    }
  }
  return index;
}

}  // namespace textbook
