// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "check.hpp"
#include "layer_math.hpp"
#include "mla/error.hpp"
#include "mla/layer.hpp"

namespace mla {
namespace {

using reference::detail::require_at_least;
using reference::detail::require_between;
using reference::detail::require_size;

void require_finite(std::string_view what, double value, double above) {
  if (std::isfinite(value) && value > above) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}, but must be finite and > {}", what, value, above));
}

void validate(const RopeParameters& p) {
  require_between("the rotary dimension", p.dim, 0, 1 << 15);
  if (p.dim % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the rotary dimension is {}, but must be even", p.dim));
  }
  require_finite("rope theta", p.theta, 1.0);
  if (!p.yarn) return;
  require_finite("the YaRN factor", p.factor, 0.0);
  require_at_least("original_max_position", p.original_max_position, 1);
  require_at_least("max_seq_len", p.max_seq_len, 0);
  require_finite("beta_fast", p.beta_fast, 0.0);
  require_finite("beta_slow", p.beta_slow, 0.0);
  if (p.attention_factor) require_finite("attention_factor", *p.attention_factor, 0.0);
  for (const auto& mscale : {p.mscale, p.mscale_all_dim}) {
    if (mscale && !std::isfinite(*mscale)) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("mscale is {}, but must be finite", *mscale));
    }
  }
}

/// YaRN's magnitude correction g(f, m).
double magnitude(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

/// What one rule makes of the parameters.
struct Yarn {
  bool stretched = false;  // frequencies are changed
  double amplitude = 1.0;
  double scale_factor = 1.0;
};

double square(double x) {
  return x * x;
}

Yarn read_yarn(const RopeParameters& p, YarnRule rule) {
  if (!p.yarn) return {};
  switch (rule) {
    case YarnRule::kDeepSeek: {
      const auto original = static_cast<double>(p.original_max_position);
      const double longest = p.max_seq_len > 0 ? static_cast<double>(p.max_seq_len) : p.factor * original;
      if (longest <= original) return {};
      return {true, 1.0, square(magnitude(p.factor, p.mscale.value_or(1.0)))};
    }
    case YarnRule::kTransformers: {
      const double mscale = p.mscale.value_or(0.0), all_dim = p.mscale_all_dim.value_or(0.0);
      Yarn yarn{true, magnitude(p.factor, 1.0), 1.0};
      if (mscale != 0 && all_dim != 0)
        yarn.amplitude = magnitude(p.factor, mscale) / magnitude(p.factor, all_dim);
      if (p.attention_factor) yarn.amplitude = *p.attention_factor;
      if (all_dim != 0) yarn.scale_factor = square(magnitude(p.factor, all_dim));
      return yarn;
    }
    case YarnRule::kVllm: {
      const double all_dim = magnitude(p.factor, p.mscale_all_dim.value_or(0.0));
      return {true, magnitude(p.factor, p.mscale.value_or(1.0)) / all_dim * p.attention_factor.value_or(1.0),
              square(all_dim)};
    }
  }
  throw Error(ErrorCode::kInternal, fmt::format("unknown YaRN rule {}", static_cast<int>(rule)));
}

/// The channel pair that makes `turns` turns within the original context, as a real number.
double pair_with_turns(const RopeParameters& p, double turns) {
  const auto original = static_cast<double>(p.original_max_position);
  return p.dim * std::log(original / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(p.theta));
}

/// Angle per position of each pair. Real is the type of the arithmetic: engines compute these in float.
template <class Real>
std::vector<Real> inverse_frequencies(const RopeParameters& p, bool stretched) {
  std::vector<Real> frequencies;
  double low = 0, high = 0;
  if (stretched) {
    low = std::max(0.0, std::floor(pair_with_turns(p, p.beta_fast)));
    high = std::min(p.dim - 1.0, std::ceil(pair_with_turns(p, p.beta_slow)));
    if (low == high) high += 0.001;  // as every implementation does, against 0 / 0
  }
  for (int i = 0; i < p.dim / 2; ++i) {
    const Real exponent = static_cast<Real>(2 * i) / static_cast<Real>(p.dim);
    const Real plain = Real{1} / std::pow(static_cast<Real>(p.theta), exponent);
    if (!stretched) {
      frequencies.push_back(plain);
      continue;
    }
    // Fast pairs (below `low`) keep their frequency, slow ones (above `high`) are slowed down by the factor.
    const Real ramp = std::clamp(
        (static_cast<Real>(i) - static_cast<Real>(low)) / static_cast<Real>(high - low), Real{0}, Real{1});
    const Real slowed = plain / static_cast<Real>(p.factor);
    frequencies.push_back(slowed * ramp + plain * (Real{1} - ramp));
  }
  return frequencies;
}

template <class Real>
void fill(RopeTable& table, const RopeParameters& p, bool stretched,
          std::span<const std::int64_t> positions) {
  const std::vector<Real> frequencies = inverse_frequencies<Real>(p, stretched);
  const auto amplitude = static_cast<Real>(table.amplitude);
  table.cos.reserve(positions.size() * frequencies.size());
  table.sin.reserve(positions.size() * frequencies.size());
  for (const std::int64_t position : positions) {
    for (const Real frequency : frequencies) {
      const Real angle = static_cast<Real>(position) * frequency;
      table.cos.push_back(std::cos(angle) * amplitude);
      table.sin.push_back(std::sin(angle) * amplitude);
    }
  }
}

}  // namespace

RopeTable make_rope_table(const RopeParameters& parameters, YarnRule rule,
                          std::span<const std::int64_t> positions, bool f32_angles) {
  validate(parameters);
  for (const std::int64_t position : positions) require_at_least("a position", position, 0);
  const Yarn yarn = read_yarn(parameters, rule);
  RopeTable table;
  table.half = parameters.dim / 2;
  table.amplitude = yarn.amplitude;
  table.softmax_scale_factor = yarn.scale_factor;
  if (f32_angles) {
    fill<float>(table, parameters, yarn.stretched, positions);
  } else {
    fill<double>(table, parameters, yarn.stretched, positions);
  }
  return table;
}

void apply_rope(std::span<double> x, const RopeTable& table, std::int64_t rows,
                std::int64_t rows_per_position, RopeLayout input, RopeLayout output) {
  require_at_least("rows", rows, 0);
  require_at_least("rows_per_position", rows_per_position, 1);
  require_at_least("the rotary table's half width", table.half, 0);
  require_size("x", x.size(), "[rows, R]", {rows, 2 * std::int64_t{table.half}});
  const std::int64_t positions = (rows + rows_per_position - 1) / rows_per_position;
  reference::detail::require_rope(table, positions, 2 * table.half);
  const reference::detail::Rotation<double> rotation(table, input, output);
  for (std::int64_t row = 0; row < rows; ++row) {
    rotation.apply(row / rows_per_position, x.data() + row * 2 * table.half);
  }
}

}  // namespace mla
