// SPDX-License-Identifier: Apache-2.0
#include "verify/values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "mla/dims.hpp"
#include "mla/random.hpp"
#include "verify/in_parallel.hpp"

namespace mla::verify {
namespace {

/// Streams of the random generator, one a tensor.
enum Stream : std::uint64_t { kQuery = 1, kLatent, kUk, kUv, kShared };

/// Value of the query's carrier channel where single scores are set.
constexpr double kCarrier = 8.0;

/// Normal numbers of one seed, kept until another seed comes: oracles vary one case dozens of times, and drawing the same
/// numbers again was half of their time.
class Normals {
 public:
  /// x = scale times the first `size` numbers of the stream.
  void fill(std::vector<double>& x, std::size_t size, std::uint64_t seed, Stream stream, double scale) {
    if (seed != seed_) {
      for (std::vector<double>& kept : kept_) kept.clear();
      seed_ = seed;
    }
    x.resize(size);
    std::vector<double>& kept = kept_[stream];
    if (size <= kMostKept && size > kept.size()) {
      const std::size_t known = kept.size();
      kept.resize(size);
      draw(kept, known, seed, stream);
    }
    const std::size_t known = std::min(kept.size(), size);
    std::copy_n(kept.begin(), known, x.begin());
    draw(x, known, seed, stream);
    for (double& value : x) value *= scale;
  }

 private:
  static constexpr std::size_t kMostKept = std::size_t{1} << 22;  // 32 MiB a stream

  /// x[i] for all i from `first` on.
  static void draw(std::vector<double>& x, std::size_t first, std::uint64_t seed, Stream stream) {
    const CounterRng rng(seed, stream);
    const auto count = static_cast<std::int64_t>(x.size() - first);
    in_parallel(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t i = first + static_cast<std::size_t>(begin); i < first + static_cast<std::size_t>(end);
           ++i)
        x[i] = rng.normal(i);
    });
  }

  std::uint64_t seed_ = 0;
  std::array<std::vector<double>, kShared> kept_;  // by stream
};

void fill_normal(std::vector<double>& x, std::size_t size, std::uint64_t seed, Stream stream, double scale) {
  thread_local Normals normals;
  normals.fill(x, size, seed, stream, scale);
}

/// Fills a case's tensors, then bends them to the case's kind.
class Builder {
 public:
  explicit Builder(const Case& c) : case_(c), shape_(c.shape), dims_(c.shape.dims) {
    values_.softmax_scale = case_scale(dims_);
    const bool head = shape_.space == QuerySpace::kHead;
    const auto heads = static_cast<std::size_t>(dims_.num_heads);
    const auto rank = static_cast<std::size_t>(dims_.kv_lora_rank);
    width_ = static_cast<std::size_t>(dims_.latent_width());
    const auto query = static_cast<std::size_t>(query_width(shape_));
    // Keys have unit variance in either space, so the scores' standard deviation is scale * q * sqrt(width).
    const double q_scale = c.score_std / (values_.softmax_scale * std::sqrt(static_cast<double>(query)));
    fill_normal(values_.q, static_cast<std::size_t>(shape_.num_tokens()) * heads * query, c.seed, kQuery,
                q_scale);
    fill_normal(values_.latent, static_cast<std::size_t>(num_keys(shape_)) * width_, c.seed, kLatent, 1.0);
    if (head) {
      const double w_scale = 1 / std::sqrt(static_cast<double>(rank));
      fill_normal(values_.w_uk, heads * static_cast<std::size_t>(dims_.qk_nope_head_dim) * rank, c.seed, kUk,
                  w_scale);
      fill_normal(values_.w_uv, heads * static_cast<std::size_t>(dims_.v_head_dim) * rank, c.seed, kUv,
                  w_scale);
    }
  }

  Values finish() {
    switch (case_.values) {
      case ValueKind::kNormal:
        break;
      case ValueKind::kDominant:
        dominant();
        break;
      case ValueKind::kSinks:
        add_scores([](std::int64_t j, std::int64_t) { return j < 4 ? 10.0 : 0.0; });
        break;
      case ValueKind::kConstant:
        constant();
        break;
      case ValueKind::kAlternating:
        alternating();
        break;
      case ValueKind::kHeavyTail:
        heavy_tail();
        break;
      case ValueKind::kTiny:
        each_latent([](std::size_t, std::size_t, double x) { return std::ldexp(x, -100); });
        break;
      case ValueKind::kExtreme:
        extreme();
        break;
      case ValueKind::kDenormal:
        each_latent([](std::size_t, std::size_t, double x) { return std::ldexp(x, -130); });
        break;
      case ValueKind::kZeroQuery:
        std::fill(values_.q.begin(), values_.q.end(), 0.0);
        break;
      case ValueKind::kNan:
        middle_score(std::numeric_limits<double>::quiet_NaN());
        break;
      case ValueKind::kInfinity:
        middle_score(std::numeric_limits<double>::infinity());
        break;
    }
    values_.token_index = make_token_index(case_);
    return std::move(values_);
  }

 private:
  /// Adds score(j, n) to the score of key j of n of each request, for all heads and queries alike, through
  /// one channel that carries nothing else: the first rotary one, or the first latent one (then W_UK passes
  /// it on unchanged).
  template <class Score>
  void add_scores(Score score) {
    const bool rotary = dims_.qk_rope_head_dim > 0;
    const bool head = shape_.space == QuerySpace::kHead;
    const std::size_t key_channel = rotary ? static_cast<std::size_t>(dims_.kv_lora_rank) : 0;
    const std::size_t query_channel =
        !rotary ? 0 : static_cast<std::size_t>(head ? dims_.qk_nope_head_dim : dims_.kv_lora_rank);
    const auto query = static_cast<std::size_t>(query_width(shape_));
    for (std::size_t i = query_channel; i < values_.q.size(); i += query) values_.q[i] = kCarrier;
    if (!rotary && head) pass_first_channel();
    std::size_t row = 0;
    for (const Request& r : shape_.batch) {
      for (std::int64_t j = 0; j < r.kv_len; ++j, ++row) {
        values_.latent[row * width_ + key_channel] = score(j, r.kv_len) / (values_.softmax_scale * kCarrier);
      }
    }
  }

  void pass_first_channel() {
    const auto rank = static_cast<std::size_t>(dims_.kv_lora_rank);
    const std::size_t head_size = static_cast<std::size_t>(dims_.qk_nope_head_dim) * rank;
    for (std::size_t h = 0; h < static_cast<std::size_t>(dims_.num_heads); ++h) {
      double* first = values_.w_uk.data() + h * head_size;
      std::fill(first, first + rank, 0.0);
      first[0] = 1.0;
    }
  }

  /// c_kv[row, channel] = f(row in the request, channel, old).
  template <class Function>
  void each_latent(Function f) {
    std::size_t row = 0;
    for (const Request& r : shape_.batch) {
      for (std::int64_t j = 0; j < r.kv_len; ++j, ++row) {
        for (std::size_t c = 0; c < static_cast<std::size_t>(dims_.kv_lora_rank); ++c) {
          double& x = values_.latent[row * width_ + c];
          x = f(static_cast<std::size_t>(j), c, x);
        }
      }
    }
  }

  void dominant() {
    const std::uint64_t where = case_.seed % 5;
    const std::int64_t block = shape_.block_size;
    add_scores([where, block](std::int64_t j, std::int64_t n) {
      constexpr std::int64_t kTile = 64;  // tiles of kernels are multiples or halves of it
      const std::int64_t places[] = {0, n / 2, n - 1, std::min(block, n - 1), std::min(kTile - 1, n - 1)};
      return j == places[where] ? 40.0 : 0.0;
    });
  }

  void middle_score(double score) {
    add_scores([score](std::int64_t j, std::int64_t n) { return j == n / 2 ? score : 0.0; });
  }

  void constant() {
    const CounterRng rng(case_.seed, kShared);
    each_latent([&rng](std::size_t, std::size_t c, double) { return rng.normal(c); });
  }

  void alternating() {
    // The scores must not follow the sign, or nothing would cancel: the query's latent part is off.
    const auto query = static_cast<std::size_t>(query_width(shape_));
    const std::size_t off = query - static_cast<std::size_t>(dims_.qk_rope_head_dim);
    for (std::size_t i = 0; i < values_.q.size(); ++i) {
      if (i % query < off) values_.q[i] = 0;
    }
    const CounterRng rng(case_.seed, kShared);
    each_latent([&rng](std::size_t j, std::size_t c, double x) {
      return (j % 2 == 0 ? 1 : -1) * (rng.normal(c) + 0x1p-6 * x);
    });
  }

  void heavy_tail() {
    const auto channel = static_cast<std::size_t>(dims_.kv_lora_rank / 2);
    each_latent([channel](std::size_t, std::size_t c, double x) { return c == channel ? 64 * x : x; });
    if (shape_.space == QuerySpace::kLatent) {  // keep the scores as they were
      for (std::size_t i = channel; i < values_.q.size(); i += width_) values_.q[i] /= 64;
    }
  }

  void extreme() {
    add_scores([](std::int64_t j, std::int64_t) { return j % 3 == 0 ? 1e4 : j % 3 == 1 ? -1e4 : 0.0; });
  }

  const Case& case_;
  const AttentionShape& shape_;
  const MlaDims& dims_;
  std::size_t width_ = 0;
  Values values_;
};

}  // namespace

int query_width(const AttentionShape& shape) {
  return shape.space == QuerySpace::kLatent ? shape.dims.latent_width() : shape.dims.head_width();
}

int output_width(const AttentionShape& shape) {
  return shape.space == QuerySpace::kLatent ? shape.dims.kv_lora_rank : shape.dims.v_head_dim;
}

std::int64_t num_keys(const AttentionShape& shape) {
  std::int64_t n = 0;
  for (const Request& r : shape.batch) n += r.kv_len;
  return n;
}

double case_scale(const MlaDims& dims) {
  constexpr double kFactor = 1.3689;  // about YaRN's 0.1 ln 40 + 1: nobody computes it by accident
  return plain_softmax_scale(dims) * kFactor;
}

Values make_values(const Case& c) {
  return Builder(c).finish();
}

}  // namespace mla::verify
