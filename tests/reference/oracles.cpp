// SPDX-License-Identifier: Apache-2.0
// Results known without computing: no tolerance, or one that is the last digit written down.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mla/layer.hpp"
#include "mla/reference.hpp"

namespace {

using namespace mla;
using namespace mla::reference;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Zero logits, key j holds the value j: the output is the mean of the visible keys' positions, the LSE the
/// log of their number. A key dropped, doubled or swapped shows at once.
struct Count {
  explicit Count(int keys, int queries = 1)
      : batch{{queries, keys}}, q(static_cast<std::size_t>(queries), 0.0) {
    for (int j = 0; j < keys; ++j) v.push_back(j);
    k.assign(v.size(), 1.0);
  }
  [[nodiscard]] AttentionOutput run(const Visibility& visible, const Options& options = {}) const {
    return mha({batch, 1, 1, 1, 1, q, k, v, visible, 1.0}, options);
  }
  std::vector<Request> batch;
  std::vector<double> q, k, v;
};

TEST(Oracle, CountOfACausalRowIsTheMeanOfItsPositions) {
  const Count count(41, 41);
  for (const Arithmetic arithmetic : {Arithmetic::kF64, Arithmetic::kF32}) {
    const AttentionOutput got = count.run({}, {.arithmetic = arithmetic});
    for (std::size_t p = 0; p < 41; ++p) EXPECT_EQ(got.out[p], static_cast<double>(p) / 2) << p;
  }
  for (std::size_t p = 0; p < 41; ++p) EXPECT_EQ(count.run({}).lse[p], std::log(static_cast<double>(p + 1)));
}

// The documents' example (16.2): sequence 100, window 32, sink 4 keeps 36 keys.
TEST(Oracle, WindowAndSinkOfTheDocuments) {
  const Count count(100);
  const Visibility visible{{true, 32, 4}, {}, 0};
  const double mean = (0 + 1 + 2 + 3 + (68 + 99) * 32 / 2) / 36.0;
  for (const int splits : {1, 2, 7}) {
    const AttentionOutput got = count.run(visible, {.num_splits = splits, .row_stats = true});
    EXPECT_NEAR(got.out[0], 74.388889, 5e-7);
    EXPECT_NEAR(got.out[0], mean, 1e-13);
    EXPECT_NEAR(got.lse[0], 3.583519, 5e-7);
    EXPECT_NEAR(got.lse[0], std::log(36.0), 1e-15);
    EXPECT_EQ(got.stats[0].num_keys, 36);
  }
}

TEST(Oracle, SinkAndWindowThatOverlapCountOnce) {
  const Count count(6);
  EXPECT_EQ(count.run({{true, 5, 4}, {}, 0}).lse[0], std::log(6.0));
  EXPECT_EQ(count.run({{true, 2, 3}, {}, 0}).out[0], (0 + 1 + 2 + 4 + 5) / 5.0);
  EXPECT_EQ(count.run({{true, 1, 0}, {}, 0}).out[0], 5.0) << "a window of one is the current key";
}

TEST(Oracle, IndexSkipsWhatIsNoPositionAndCountsDuplicates) {
  const Count count(10);
  const std::vector<std::int32_t> index{-1,
                                        7,
                                        3,
                                        7,
                                        10,
                                        -5,
                                        std::numeric_limits<std::int32_t>::max(),
                                        std::numeric_limits<std::int32_t>::min()};
  const AttentionOutput got = count.run({{}, index, 8}, {.row_stats = true});
  EXPECT_EQ(got.out[0], (7 + 3 + 7) / 3.0);
  EXPECT_EQ(got.lse[0], std::log(3.0));
  EXPECT_EQ(got.stats[0].num_keys, 3);
  const std::vector<std::int32_t> nothing(8, -1);
  const AttentionOutput empty = count.run({{}, nothing, 8});
  EXPECT_EQ(empty.out[0], 0.0);
  EXPECT_EQ(empty.lse[0], -kInfinity);
}

TEST(Oracle, AnIndexReplacesTheMask) {
  const Count count(10, 5);  // queries at positions 5..9, all told to look at key 9
  const std::vector<std::int32_t> index(5, 9);
  for (const double x : count.run({{true, 2, 1}, index, 1}).out) EXPECT_EQ(x, 9.0);
}

TEST(Oracle, OneKeyIsItsValueToTheLastBit) {
  const std::vector<Request> batch{{1, 1}};
  const std::vector<double> q{0.3, -1.7}, k{2.9, 0.11}, v{1.0 / 3.0, -0.1};
  const AttentionOutput got = mha({batch, 1, 1, 2, 2, q, k, v, {}, 0.7});
  EXPECT_EQ(got.out, v);
  EXPECT_DOUBLE_EQ(got.lse[0], 0.7 * (0.3 * 2.9 - 1.7 * 0.11));
}

TEST(Oracle, EmptyRowsAreZeroAndMinusInfinity) {
  const std::vector<Request> batch{
      {2, 0}, {3, 1}, {0, 4}};  // of 3 queries and 1 key two stand before the key
  const std::vector<double> q(5, 1.0), k(5, 2.0), v{8.0, 1.0, 1.0, 1.0, 1.0};
  for (const int splits : {1, 4}) {
    const AttentionOutput got = mha({batch, 1, 1, 1, 1, q, k, v, {}, 1.0}, {.num_splits = splits});
    EXPECT_EQ(got.out, (std::vector<double>{0, 0, 0, 0, 8}));
    EXPECT_EQ(got.lse, (std::vector<double>{-kInfinity, -kInfinity, -kInfinity, -kInfinity, 2}));
  }
  EXPECT_TRUE(mha({{}, 1, 1, 1, 1, {}, {}, {}, {}, 1.0}).out.empty());
}

TEST(Oracle, ThreeKeysByHand) {
  // Scores ln 1, ln 2, ln 5: weights 1/8, 2/8, 5/8.
  const std::vector<Request> batch{{1, 3}};
  const std::vector<double> q{2.0}, k{0.0, std::log(2.0), std::log(5.0)}, v{8.0, 16.0, 32.0};
  const AttentionOutput got = mha({batch, 1, 1, 1, 1, q, k, v, {}, 0.5});
  EXPECT_DOUBLE_EQ(got.out[0], 1.0 + 4.0 + 20.0);
  EXPECT_DOUBLE_EQ(got.lse[0], std::log(8.0));
}

TEST(Constants, SoftmaxScalesOfReleasedModels) {
  const MlaDims v3;
  EXPECT_NEAR(plain_softmax_scale(v3), 0.0721687836, 5e-11);
  const std::vector<std::int64_t> none;
  RopeParameters rope{.yarn = true, .factor = 40.0, .mscale = 1.0, .mscale_all_dim = 1.0};
  RopeParameters lite{.yarn = true, .factor = 40.0, .mscale = 0.707, .mscale_all_dim = 0.707};
  for (const YarnRule rule : {YarnRule::kDeepSeek, YarnRule::kTransformers, YarnRule::kVllm}) {
    const double factor = make_rope_table(rope, rule, none).softmax_scale_factor;
    EXPECT_NEAR(factor, 1.8738542071, 5e-11);
    EXPECT_NEAR(plain_softmax_scale(v3) * factor, 0.1352337789, 5e-11);
    const double lite_factor = make_rope_table(lite, rule, none).softmax_scale_factor;
    EXPECT_NEAR(lite_factor, 1.5896261651, 5e-11);
    EXPECT_NEAR(plain_softmax_scale(v3) * lite_factor, 0.1147213868, 5e-11);
  }
}

}  // namespace
