// SPDX-License-Identifier: Apache-2.0
// Rotary embedding: layouts, YaRN by three rules.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "mla/layer.hpp"
#include "textbook.hpp"

namespace {

using namespace mla;

const std::vector<std::int64_t> kPositions{0, 1, 17, 4095, 163839};

TEST(Rope, InterleavedIsAComplexTurn) {
  const RopeTable table = make_rope_table({.dim = 6}, YarnRule::kDeepSeek, kPositions);
  std::vector<double> x = textbook::normals(5 * 6, 1);
  const std::vector<double> before = x;
  apply_rope(x, table, 5, 1, RopeLayout::kInterleaved, RopeLayout::kInterleaved);
  for (std::size_t row = 0; row < 5; ++row) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double angle =
          static_cast<double>(kPositions[row]) * std::pow(10000.0, -2.0 * static_cast<double>(i) / 6);
      const std::complex<double> turned =
          std::complex(before[row * 6 + 2 * i], before[row * 6 + 2 * i + 1]) * std::polar(1.0, angle);
      EXPECT_NEAR(x[row * 6 + 2 * i], turned.real(), 1e-9);
      EXPECT_NEAR(x[row * 6 + 2 * i + 1], turned.imag(), 1e-9);
    }
  }
  EXPECT_EQ(std::vector(x.begin(), x.begin() + 6), std::vector(before.begin(), before.begin() + 6))
      << "position 0";
}

TEST(Rope, LayoutsDifferByAPermutationOnly) {
  const RopeTable table = make_rope_table({.dim = 8}, YarnRule::kDeepSeek, kPositions);
  const std::vector<double> interleaved = textbook::normals(5 * 8, 2);
  std::vector<double> half(interleaved.size());
  const auto to_half = [](const std::vector<double>& from, std::vector<double>& to) {
    for (std::size_t row = 0; row < 5; ++row) {
      for (std::size_t i = 0; i < 4; ++i) {
        to[row * 8 + i] = from[row * 8 + 2 * i];
        to[row * 8 + 4 + i] = from[row * 8 + 2 * i + 1];
      }
    }
  };
  to_half(interleaved, half);
  std::vector<double> a = interleaved, b = half, c = interleaved, want(half.size());
  apply_rope(a, table, 5, 1, RopeLayout::kInterleaved, RopeLayout::kInterleaved);
  apply_rope(b, table, 5, 1, RopeLayout::kHalfSplit, RopeLayout::kHalfSplit);
  apply_rope(c, table, 5, 1, RopeLayout::kInterleaved, RopeLayout::kHalfSplit);
  to_half(a, want);
  EXPECT_EQ(b, want);
  EXPECT_EQ(c, want);
  // Read with the wrong layout it is another function.
  std::vector<double> wrong = interleaved;
  apply_rope(wrong, table, 5, 1, RopeLayout::kHalfSplit, RopeLayout::kHalfSplit);
  EXPECT_GT(textbook::relative_error(wrong, a), 0.1);
}

TEST(Rope, RowsPerPositionShareATableRow) {
  const RopeTable table = make_rope_table({.dim = 4}, YarnRule::kDeepSeek, kPositions);
  std::vector<double> heads(5 * 3 * 4, 0.5), one(5 * 4, 0.5);
  apply_rope(heads, table, 15, 3, RopeLayout::kHalfSplit, RopeLayout::kHalfSplit);
  apply_rope(one, table, 5, 1, RopeLayout::kHalfSplit, RopeLayout::kHalfSplit);
  for (std::size_t row = 0; row < 15; ++row) {
    for (std::size_t d = 0; d < 4; ++d) EXPECT_EQ(heads[row * 4 + d], one[row / 3 * 4 + d]);
  }
}

TEST(Rope, ScoresDependOnTheDistanceAlone) {
  const std::vector<std::int64_t> positions{3, 10, 1003, 1010};
  const RopeTable table = make_rope_table({.dim = 16}, YarnRule::kDeepSeek, positions);
  const std::vector<double> q = textbook::normals(16, 3), k = textbook::normals(16, 4);
  std::vector<double> x;
  for (const auto* v : {&k, &q, &k, &q}) x.insert(x.end(), v->begin(), v->end());
  apply_rope(x, table, 4, 1, RopeLayout::kInterleaved, RopeLayout::kInterleaved);
  double near = 0, far = 0;
  for (std::size_t d = 0; d < 16; ++d) near += x[d] * x[16 + d], far += x[32 + d] * x[48 + d];
  EXPECT_NEAR(near, far, 1e-11);
}

TEST(Rope, SinglePrecisionAnglesAreAnotherFunctionFarOut) {
  const RopeTable exact = make_rope_table({}, YarnRule::kDeepSeek, kPositions);
  const RopeTable single = make_rope_table({}, YarnRule::kDeepSeek, kPositions, true);
  double near = 0, far = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    near = std::max(near, std::abs(exact.sin[32 + i] - single.sin[32 + i]));
    far = std::max(far, std::abs(exact.sin[4 * 32 + i] - single.sin[4 * 32 + i]));
    EXPECT_EQ(single.cos[i], static_cast<double>(static_cast<float>(single.cos[i])));
  }
  EXPECT_LT(near, 2e-7);
  EXPECT_GT(far, 1e-5);
  EXPECT_LT(far, 2e-2) << "the bound of about p 2^-23";
}

struct YarnCase {
  const char* name;
  RopeParameters parameters;
  YarnRule rule;
  double amplitude, scale;
};

RopeParameters yarn(std::optional<double> mscale, std::optional<double> all_dim, std::int64_t max_seq_len = 0,
                    std::optional<double> attention_factor = {}) {
  return {.dim = 64,
          .yarn = true,
          .factor = 40.0,
          .max_seq_len = max_seq_len,
          .mscale = mscale,
          .mscale_all_dim = all_dim,
          .attention_factor = attention_factor};
}

TEST(Yarn, AmplitudeAndScaleOfEachRule) {
  using enum YarnRule;
  const double g1 = 0.1 * std::log(40.0) + 1;   // g(40, 1)
  const double g2 = 0.05 * std::log(40.0) + 1;  // g(40, 0.5)
  const YarnCase cases[] = {
      {"1/1 DeepSeek", yarn(1, 1), kDeepSeek, 1, 1.873854},
      {"1/1 transformers", yarn(1, 1), kTransformers, 1, 1.873854},
      {"1/1 vLLM", yarn(1, 1), kVllm, 1, 1.873854},
      {"V2-Lite DeepSeek", yarn(0.707, 0.707), kDeepSeek, 1, 1.589626},
      {"V2-Lite transformers", yarn(0.707, 0.707), kTransformers, 1, 1.589626},
      {"V2-Lite vLLM", yarn(0.707, 0.707), kVllm, 1, 1.589626},
      {"no mscale DeepSeek", yarn({}, {}), kDeepSeek, 1, 1.873854},
      {"no mscale transformers", yarn({}, {}), kTransformers, 1.368888, 1},
      {"no mscale vLLM", yarn({}, {}), kVllm, 1.368888, 1},
      {"1/0.5 DeepSeek", yarn(1, 0.5), kDeepSeek, 1, 1.873854},
      {"1/0.5 transformers", yarn(1, 0.5), kTransformers, 1.155722, 1.402908},
      {"1/0.5 vLLM", yarn(1, 0.5), kVllm, 1.155722, 1.402908},
      {"mscale alone transformers", yarn(0.5, {}), kTransformers, 1.368888, 1},
      {"mscale alone vLLM", yarn(0.5, {}), kVllm, g2, 1},
      {"mscale_all_dim alone transformers", yarn({}, 0.5), kTransformers, 1.368888, 1.402908},
      {"mscale_all_dim alone vLLM", yarn({}, 0.5), kVllm, g1 / g2, 1.402908},
      {"zero mscale is falsy in transformers", yarn(0.0, 1), kTransformers, 1.368888, 1.873854},
      {"attention_factor transformers", yarn(1, 1, 0, 0.5), kTransformers, 0.5, 1.873854},
      {"attention_factor vLLM", yarn(1, 0.5, 0, 0.5), kVllm, 0.5 * g1 / g2, 1.402908},
      {"attention_factor DeepSeek", yarn(1, 1, 0, 0.5), kDeepSeek, 1, 1.873854},
      {"short max_seq_len DeepSeek", yarn(1, 1, 4096), kDeepSeek, 1, 1},
      {"longer max_seq_len DeepSeek", yarn(1, 1, 4097), kDeepSeek, 1, 1.873854},
      {"short max_seq_len transformers", yarn(1, 1, 4096), kTransformers, 1, 1.873854},
      {"short max_seq_len vLLM", yarn(1, 1, 4096), kVllm, 1, 1.873854},
  };
  for (const YarnCase& c : cases) {
    const RopeTable table = make_rope_table(c.parameters, c.rule, kPositions);
    EXPECT_NEAR(table.amplitude, c.amplitude, 5e-7) << c.name;
    EXPECT_NEAR(table.softmax_scale_factor, c.scale, 5e-7) << c.name;
    EXPECT_NEAR(table.cos[0], c.amplitude, 5e-7) << c.name << ": the amplitude is in cos and sin";
  }
}

TEST(Yarn, FrequenciesKeepTheFastAndSlowTheSlow) {
  // DeepSeek-V3: 64 channels, theta 1e4, 4096 positions. Pairs that turn more than 32 times within the
  // original context (up to pair 10) keep their frequency, those that turn less than once (from 23 on) are
  // divided by 40.
  const std::vector<std::int64_t> one{1};
  const RopeTable table = make_rope_table(yarn(1, 1), YarnRule::kDeepSeek, one);
  for (std::size_t i = 0; i < 32; ++i) {
    const double plain = std::pow(10000.0, -2.0 * static_cast<double>(i) / 64);
    const double angle = std::atan2(table.sin[i], table.cos[i]);
    double want = plain;
    if (i >= 23) {
      want = plain / 40;
    } else if (i > 10) {
      const double ramp = (static_cast<double>(i) - 10) / 13;
      want = plain / 40 * ramp + plain * (1 - ramp);
    }
    EXPECT_NEAR(angle / want, 1.0, 1e-12) << "pair " << i;
  }
  // The switch: DeepSeek's rule leaves everything alone for a short maximum.
  const RopeTable off = make_rope_table(yarn(1, 1, 4096), YarnRule::kDeepSeek, one);
  const RopeTable none = make_rope_table({.dim = 64}, YarnRule::kDeepSeek, one);
  EXPECT_EQ(off.cos, none.cos);
  EXPECT_EQ(off.sin, none.sin);
  EXPECT_NE(off.sin, table.sin);
}

TEST(Yarn, AFactorOfOneOrLessHasNoMagnitude) {
  for (const double factor : {1.0, 0.5}) {
    RopeParameters p = yarn(1, 1);
    p.factor = factor;
    for (const YarnRule rule : {YarnRule::kTransformers, YarnRule::kVllm}) {
      const RopeTable table = make_rope_table(p, rule, kPositions);
      EXPECT_EQ(table.amplitude, 1.0);
      EXPECT_EQ(table.softmax_scale_factor, 1.0);
    }
  }
}

TEST(Rope, NoRotaryPartIsNothingToDo) {
  const RopeTable table = make_rope_table({.dim = 0}, YarnRule::kVllm, kPositions);
  std::vector<double> none;
  apply_rope(none, table, 5, 1, RopeLayout::kInterleaved, RopeLayout::kHalfSplit);
  EXPECT_TRUE(table.cos.empty());
}

}  // namespace
