// SPDX-License-Identifier: Apache-2.0
// The layer from hidden states, one number at a time in long double, with every option the models differ by.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "../unit/expect_error.hpp"
#include "mla/layer.hpp"
#include "textbook.hpp"

namespace {

using namespace mla;
using textbook::normals;
using textbook::relative_error;

using Real = long double;
using Reals = std::vector<Real>;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// y = W x + b for one token.
Reals linear(const std::vector<double>& weight, const Reals& x, const std::vector<double>& bias) {
  Reals y(weight.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
    if (!bias.empty()) y[o] += bias[o];
  }
  return y;
}

void norm(Real* x, const std::vector<double>& weight, double eps) {
  Real mean = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) mean += x[i] * x[i] / static_cast<Real>(weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) x[i] *= weight[i] / std::sqrt(mean + eps);
}

void rotate(Real* x, const RopeTable& table, std::int64_t position, RopeLayout in, RopeLayout out) {
  const std::int64_t half = table.half;
  const Reals from(x, x + 2 * half);
  for (std::int64_t i = 0; i < half; ++i) {
    const bool pairs_in = in == RopeLayout::kInterleaved, pairs_out = out == RopeLayout::kInterleaved;
    const Real a = from[at(pairs_in ? 2 * i : i)], b = from[at(pairs_in ? 2 * i + 1 : half + i)];
    const double c = table.cos[at(position * half + i)], s = table.sin[at(position * half + i)];
    x[pairs_out ? 2 * i : i] = a * c - b * s;
    x[pairs_out ? 2 * i + 1 : half + i] = b * c + a * s;
  }
}

struct Layer {
  std::string name;
  LayerConfig config;
  LayerWeights weights;
  std::vector<double> hidden;
  RopeTable rope;
  std::int64_t tokens = 6;
};

std::string layer_name(const testing::TestParamInfo<Layer>& named) {
  return named.param.name;
}

/// One layer of odd widths; `change` makes it one of the variants.
template <class Change>
Layer make_layer(const std::string& name, Change change) {
  Layer layer;
  layer.name = name;
  LayerConfig& c = layer.config;
  c.dims = textbook::kOddDims;
  c.hidden_size = 19;
  c.q_lora_rank = 13;
  change(c);
  const auto& [H, L, R, P, V] = c.dims;
  LayerWeights& w = layer.weights;
  if (c.q_lora_rank) {
    const int rank = *c.q_lora_rank;
    w.q_a_proj = normals(rank * c.hidden_size, 1, 0.3);
    w.q_a_layernorm = normals(rank, 2);
    w.q_b_proj = normals(H * (P + R) * rank, 3, 0.5);
  } else {
    w.q_proj = normals(H * (P + R) * c.hidden_size, 4, 0.3);
  }
  w.kv_a_proj = normals((L + R) * c.hidden_size, 5, 0.3);
  w.kv_a_layernorm = normals(L, 6);
  w.kv_b_proj = normals(H * (P + V) * L, 7, 0.4);
  w.o_proj = normals(c.hidden_size * H * V, 8, 0.2);
  layer.hidden = normals(layer.tokens * c.hidden_size, 9, name == "epsilon" ? 0.01 : 1.0);
  const std::vector<std::int64_t> positions{0, 1, 2, 40, 41, 3000};
  layer.rope = make_rope_table({.dim = R}, YarnRule::kDeepSeek, positions);
  if (name == "biases") {
    if (c.q_lora_rank) w.q_a_proj_bias = normals(*c.q_lora_rank, 10);
    w.kv_a_proj_bias = normals(L + R, 11);
    w.o_proj_bias = normals(c.hidden_size, 12);
  }
  return layer;
}

std::vector<Layer> layers() {
  return {
      make_layer("plain", [](LayerConfig&) {}),
      make_layer("no_query_compression", [](LayerConfig& c) { c.q_lora_rank.reset(); }),
      make_layer("biases", [](LayerConfig&) {}),
      make_layer("epsilon", [](LayerConfig& c) { c.q_norm_eps = 1e-3, c.kv_norm_eps = 1e-2; }),
      make_layer("half_split", [](LayerConfig& c) { c.rope_input = c.rope_output = RopeLayout::kHalfSplit; }),
      make_layer("transformers_v3", [](LayerConfig& c) { c.rope_output = RopeLayout::kHalfSplit; }),
      make_layer("longcat",
                 [](LayerConfig& c) { c.q_multiplier = std::sqrt(19.0 / 13), c.kv_multiplier = 1.7; }),
      make_layer("no_rotary_part", [](LayerConfig& c) { c.dims.qk_rope_head_dim = 0; })};
}

struct Expected {
  std::vector<double> q, rows, out, lse;
};

Expected compute(const Layer& layer, double scale) {
  const LayerConfig& c = layer.config;
  const LayerWeights& w = layer.weights;
  const auto& [H, L, R, P, V] = c.dims;
  Expected e;
  for (std::int64_t t = 0; t < layer.tokens; ++t) {
    const Reals x(layer.hidden.begin() + t * c.hidden_size, layer.hidden.begin() + (t + 1) * c.hidden_size);
    Reals q;
    if (c.q_lora_rank) {
      Reals a = linear(w.q_a_proj, x, w.q_a_proj_bias);
      norm(a.data(), w.q_a_layernorm, c.q_norm_eps);
      q = linear(w.q_b_proj, a, {});
    } else {
      q = linear(w.q_proj, x, {});
    }
    for (Real& value : q) value *= c.q_multiplier;
    for (std::int64_t h = 0; h < H; ++h)
      rotate(q.data() + h * (P + R) + P, layer.rope, t, c.rope_input, c.rope_output);
    e.q.insert(e.q.end(), q.begin(), q.end());
    Reals row = linear(w.kv_a_proj, x, w.kv_a_proj_bias);
    norm(row.data(), w.kv_a_layernorm, c.kv_norm_eps);
    for (std::int64_t l = 0; l < L; ++l) row[at(l)] *= c.kv_multiplier;
    rotate(row.data() + L, layer.rope, t, c.rope_input, c.rope_output);
    e.rows.insert(e.rows.end(), row.begin(), row.end());
  }
  std::vector<double> w_uk, w_uv;
  for (std::int64_t h = 0; h < H; ++h) {
    for (std::int64_t r = 0; r < P + V; ++r) {
      auto& to = r < P ? w_uk : w_uv;
      const auto row = w.kv_b_proj.begin() + (h * (P + V) + r) * L;
      to.insert(to.end(), row, row + L);
    }
  }
  const std::vector<Request> batch{
      {static_cast<std::int32_t>(layer.tokens), static_cast<std::int32_t>(layer.tokens)}};
  const auto attention = textbook::mla({c.dims, batch, e.q, e.rows, w_uk, w_uv, {}, scale});
  e.lse = attention.lse;
  for (std::int64_t t = 0; t < layer.tokens; ++t) {
    const Reals o(attention.out.begin() + t * H * V, attention.out.begin() + (t + 1) * H * V);
    const Reals y = linear(w.o_proj, o, w.o_proj_bias);
    e.out.insert(e.out.end(), y.begin(), y.end());
  }
  return e;
}

class Layers : public testing::TestWithParam<Layer> {};
INSTANTIATE_TEST_SUITE_P(Variants, Layers, testing::ValuesIn(layers()), layer_name);

TEST_P(Layers, IsTheTextbookFromHiddenStatesToOutput) {
  const Layer& l = GetParam();
  const double scale = 0.4;
  const Expected want = compute(l, scale);
  for (const auto& [arithmetic, limit] :
       {std::pair{reference::Arithmetic::kF64, 1e-13}, std::pair{reference::Arithmetic::kF32, 3e-5}}) {
    for (const LayerForm form : {LayerForm::kExpanded, LayerForm::kAbsorbed}) {
      const LayerStep got = layer_forward(l.config, l.weights, l.hidden, {}, l.rope, scale, form, {},
                                          {.arithmetic = arithmetic});
      EXPECT_LE(relative_error(got.q, want.q), limit);
      EXPECT_LE(relative_error(got.rows, want.rows), limit);
      EXPECT_LE(relative_error(got.lse, want.lse), limit);
      EXPECT_LE(relative_error(got.out, want.out), limit);
    }
  }
}

/// Rows [first, first + count) of a table.
RopeTable part_of(const RopeTable& table, std::int64_t first, std::int64_t count) {
  RopeTable part = table;
  const std::int64_t half = table.half;
  part.cos.assign(table.cos.begin() + first * half, table.cos.begin() + (first + count) * half);
  part.sin.assign(table.sin.begin() + first * half, table.sin.begin() + (first + count) * half);
  return part;
}

TEST_P(Layers, StepByStepFromTheCacheIsTheWhole) {
  const Layer& l = GetParam();
  const auto hidden_size = l.config.hidden_size;
  for (const LayerForm form : {LayerForm::kExpanded, LayerForm::kAbsorbed}) {
    const LayerStep whole = layer_forward(l.config, l.weights, l.hidden, {}, l.rope, 0.4, form);
    for (const std::vector<std::int64_t>& steps :
         {std::vector<std::int64_t>{1, 1, 1, 1, 1, 1}, {3, 1, 2}, {4, 0, 2}}) {
      std::vector<double> past, out;
      std::int64_t first = 0;
      for (const std::int64_t count : steps) {
        const std::vector<double> hidden(l.hidden.begin() + first * hidden_size,
                                         l.hidden.begin() + (first + count) * hidden_size);
        const LayerStep step =
            layer_forward(l.config, l.weights, hidden, past, part_of(l.rope, first, count), 0.4, form);
        past.insert(past.end(), step.rows.begin(), step.rows.end());
        out.insert(out.end(), step.out.begin(), step.out.end());
        first += count;
      }
      EXPECT_LE(relative_error(out, whole.out), 1e-13);
      EXPECT_LE(relative_error(past, whole.rows), 1e-13);
    }
  }
}

TEST(LayerPieces, RmsNorm) {
  const std::vector<double> x{3, 4, 0, 0, 0, 0}, weight{1, 2};
  const double r = std::sqrt(12.5 + 0.5);
  const std::vector<double> got = rms_norm(x, weight, 0.5);
  EXPECT_DOUBLE_EQ(got[0], 3 / r);
  EXPECT_DOUBLE_EQ(got[1], 8 / r);
  EXPECT_EQ(got[2], 0);
}

TEST(LayerPieces, KvBIsSplitHeadByHead) {
  const MlaDims dims{
      .num_heads = 2, .kv_lora_rank = 1, .qk_rope_head_dim = 0, .qk_nope_head_dim = 2, .v_head_dim = 3};
  const UpProjections up = split_kv_b(dims, std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(up.w_uk, (std::vector<double>{0, 1, 5, 6}));
  EXPECT_EQ(up.w_uv, (std::vector<double>{2, 3, 4, 7, 8, 9}));
}

TEST(LayerPieces, WrongWeightsAreNamed) {
  const Layer good = make_layer("plain", [](LayerConfig&) {});
  const auto refused = [&](auto change, const std::vector<std::string_view>& parts) {
    Layer l = good;
    change(l);
    expect_error(
        [&] { return layer_forward(l.config, l.weights, l.hidden, {}, l.rope, 0.4, LayerForm::kExpanded); },
        ErrorCode::kInvalidArgument, parts);
  };
  refused([](Layer& l) { l.weights.q_a_proj.pop_back(); },
          {"q_a_proj has 246", "[Lq, hidden] = [13, 19] has 247"});
  refused([](Layer& l) { l.weights.q_b_proj.clear(); }, {"q_b_proj has 0"});
  refused([](Layer& l) { l.weights.q_a_layernorm.push_back(1); }, {"q_a_layernorm has 14"});
  refused([](Layer& l) { l.weights.q_a_proj_bias = {1, 2}; }, {"q_a_proj_bias has 2"});
  refused([](Layer& l) { l.config.q_lora_rank.reset(); }, {"q_proj has 0"});
  refused([](Layer& l) { l.weights.kv_a_proj.pop_back(); }, {"kv_a_proj has 379"});
  refused([](Layer& l) { l.weights.kv_a_proj_bias = {1}; }, {"kv_a_proj_bias has 1"});
  refused([](Layer& l) { l.weights.kv_a_layernorm.pop_back(); }, {"kv_a_layernorm has 13"});
  refused([](Layer& l) { l.weights.kv_b_proj.pop_back(); }, {"kv_b_proj has 1399"});
  refused([](Layer& l) { l.weights.o_proj.pop_back(); }, {"o_proj has 1044"});
  refused([](Layer& l) { l.weights.o_proj_bias = {1}; }, {"o_proj_bias has 1"});
  refused([](Layer& l) { l.hidden.pop_back(); }, {"hidden has 113", "[S, hidden] = [5, 19]"});
  refused([](Layer& l) { l.rope.cos.pop_back(); }, {"cos has 17"});
  refused([](Layer& l) { l.rope.half = 4; }, {"8 channels", "6 are rotated"});
  refused([](Layer& l) { l.config.hidden_size = 0; }, {"hidden_size is 0"});
  refused([](Layer& l) { l.config.q_lora_rank = -1; }, {"q_lora_rank is -1"});
  refused([](Layer& l) { l.config.kv_norm_eps = -1; }, {"epsilon", "-1"});
}

}  // namespace
