// SPDX-License-Identifier: Apache-2.0
// The layer against the attention modules of Hugging Face transformers (tests/golden); mla-verify golden
// checks all sets.
#include <gtest/gtest.h>

#include <string>

#include "mla/layer.hpp"
#include "mla/safetensors.hpp"
#include "textbook.hpp"

namespace {

using namespace mla;
using textbook::relative_error;

constexpr double kLimit = 1e-10;

struct Golden {
  std::string name;
  MlaDims dims;
  int hidden_size;
  std::optional<int> q_lora_rank;
  double softmax_scale;
  RopeLayout pairs;
  RopeParameters rope;
};

std::vector<Golden> sets() {
  const MlaDims small{
      .num_heads = 5, .kv_lora_rank = 32, .qk_rope_head_dim = 8, .qk_nope_head_dim = 16, .v_head_dim = 16};
  const MlaDims minicpm3{
      .num_heads = 3, .kv_lora_rank = 256, .qk_rope_head_dim = 32, .qk_nope_head_dim = 64, .v_head_dim = 64};
  const auto yarn = [](std::optional<double> mscale, std::optional<double> all_dim) {
    return RopeParameters{
        .dim = 8, .yarn = true, .factor = 40.0, .mscale = mscale, .mscale_all_dim = all_dim};
  };
  const double plain = 0.2041241452319315;  // 24^-1/2
  return {{"v3_small", small, 80, 24, plain, RopeLayout::kInterleaved, {.dim = 8}},
          {"v2lite_yarn", small, 80, {}, 0.3244810821936116, RopeLayout::kInterleaved, yarn(0.707, 0.707)},
          {"minicpm3_dims", minicpm3, 36, 16, 0.10206207261596575, RopeLayout::kHalfSplit, {.dim = 32}},
          {"v3_yarn_nomscale", small, 80, 24, plain, RopeLayout::kInterleaved, yarn({}, {})},
          {"v3_yarn_mixed", small, 80, 24, 0.286367299273691, RopeLayout::kInterleaved, yarn(1.0, 0.5)}};
}

class GoldenSet : public testing::TestWithParam<Golden> {
 protected:
  GoldenSet()
      : file(SafetensorsFile::open(std::string(MLA_TEST_DATA) + "/golden/" + GetParam().name +
                                   ".safetensors")) {
    const Golden& g = GetParam();
    config.dims = g.dims;
    config.hidden_size = g.hidden_size;
    config.q_lora_rank = g.q_lora_rank;
    config.rope_input = config.rope_output = g.pairs;
    if (g.q_lora_rank) {
      weights.q_a_proj = read("w.q_a_proj.weight");
      weights.q_a_layernorm = read("w.q_a_layernorm.weight");
      weights.q_b_proj = read("w.q_b_proj.weight");
    } else {
      weights.q_proj = read("w.q_proj.weight");
    }
    weights.kv_a_proj = read("w.kv_a_proj_with_mqa.weight");
    weights.kv_a_layernorm = read("w.kv_a_layernorm.weight");
    weights.kv_b_proj = read("w.kv_b_proj.weight");
    weights.o_proj = read("w.o_proj.weight");
    rope.half = g.dims.qk_rope_head_dim / 2;
    rope.cos = read("seq0.cos");
    rope.sin = read("seq0.sin");
  }
  [[nodiscard]] std::vector<double> read(const std::string& name) const { return file.at(name).to_double(); }
  /// [heads, S] as saved -> [S, heads].
  [[nodiscard]] std::vector<double> read_lse(const std::string& name) const {
    const auto saved = read(name);
    const auto heads = static_cast<std::size_t>(GetParam().dims.num_heads), tokens = saved.size() / heads;
    std::vector<double> lse(saved.size());
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t h = 0; h < heads; ++h) lse[t * heads + h] = saved[h * tokens + t];
    }
    return lse;
  }
  void check(const std::string& prefix, const reference::Visibility& visible) const {
    for (const LayerForm form : {LayerForm::kExpanded, LayerForm::kAbsorbed}) {
      const LayerStep got = layer_forward(config, weights, read("seq0.hidden"), {}, rope,
                                          GetParam().softmax_scale, form, visible);
      EXPECT_LE(relative_error(got.attention, read(prefix + "attn_f64")), kLimit) << prefix;
      EXPECT_LE(relative_error(got.lse, read_lse(prefix + "lse_f64")), kLimit) << prefix;
      EXPECT_LE(relative_error(got.out, read(prefix + "out_f64")), kLimit) << prefix;
    }
  }

  SafetensorsFile file;
  LayerConfig config;
  LayerWeights weights;
  RopeTable rope;
};
INSTANTIATE_TEST_SUITE_P(Sets, GoldenSet, testing::ValuesIn(sets()),
                         [](const auto& named) { return named.param.name; });

TEST_P(GoldenSet, TheWholeLayer) {
  check("seq0.", {});
}

/// The sets saved with masked results too.
class MaskedSet : public GoldenSet {};
INSTANTIATE_TEST_SUITE_P(Sets, MaskedSet, testing::Values(sets()[0], sets()[1]),
                         [](const auto& named) { return named.param.name; });

TEST_P(MaskedSet, WindowSinkAndIndex) {
  check("seq0.window_sink.", {{true, 4, 2}, {}, 0});
  std::vector<std::int32_t> index;
  for (const double position : read("seq0.topk.indices"))
    index.push_back(static_cast<std::int32_t>(position));
  check("seq0.topk.", {{}, index, 5});
}

// The saved angles are single precision, so near positions must agree to about an ulp and far ones to about
// position * 2^-23. A wrong frequency, ramp or amplitude is off by orders more.
TEST_P(GoldenSet, OurAnglesAreTransformersAngles) {
  std::vector<std::int64_t> positions;
  for (const double p : read("seq0.positions")) positions.push_back(static_cast<std::int64_t>(p));
  const RopeTable ours = make_rope_table(GetParam().rope, YarnRule::kTransformers, positions);
  ASSERT_EQ(ours.cos.size(), rope.cos.size());
  EXPECT_NEAR(plain_softmax_scale(config.dims) * ours.softmax_scale_factor, GetParam().softmax_scale, 1e-15);
  for (std::size_t i = 0; i < ours.cos.size(); ++i) {
    const auto position = static_cast<double>(positions[i / static_cast<std::size_t>(rope.half)]);
    const double limit = ours.amplitude * (3e-7 + position * 0x1p-22);
    EXPECT_NEAR(ours.cos[i], rope.cos[i], limit) << "position " << position;
    EXPECT_NEAR(ours.sin[i], rope.sin[i], limit) << "position " << position;
  }
}

}  // namespace
