// SPDX-License-Identifier: Apache-2.0
// How cuda-latent cuts a batch with shared prefixes into two without. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "latent/cascade.hpp"
#include "latent/heuristics.hpp"
#include "mla/shape.hpp"

namespace {

using namespace mla;
using namespace mla::kernels::latent;

constexpr std::int64_t kSms = 132;

Cascade cascade_of(const char* text, bool whole = false) {
  return make_cascade(parse_shape(text), kSms, whole);
}

/// Every key of every prefix belongs to one stretch, stretches begin with a block, and no partial result lies on
/// another.
void expect_sound(const char* text, bool whole) {
  const AttentionShape shape = parse_shape(text);
  const Cascade c = make_cascade(shape, kSms, whole);
  ASSERT_EQ(c.groups.size(), shape.shared.size()) << text;
  std::int32_t slice = 0, row = 0;
  for (std::size_t i = 0; i < c.groups.size(); ++i) {
    const CascadeGroup& g = c.groups[i];
    EXPECT_EQ(g.slice, slice) << text;
    EXPECT_EQ(g.row, row) << text;
    EXPECT_EQ(g.stretch % shape.block_size, 0) << text;
    EXPECT_LE(g.stretches, whole ? 1 : kMostStretches) << text;
    std::int32_t keys = 0;
    for (std::int32_t j = 0; j < g.stretches; ++j) {
      const Request& r = c.prefix.batch.at(static_cast<std::size_t>(g.slice) + static_cast<std::size_t>(j));
      EXPECT_GT(r.kv_len, 0) << text;
      EXPECT_LE(r.kv_len, g.stretch) << text;
      EXPECT_EQ(r.q_len, g.rows) << text;
      keys += r.kv_len;
    }
    EXPECT_EQ(keys, shape.shared[i].tokens) << text;
    EXPECT_LE(g.stretch / shape.block_size, c.stretch_columns) << text;
    slice += g.stretches;
    row += g.stretches * g.rows;
  }
  EXPECT_EQ(c.own_row, row) << text;
  EXPECT_EQ(c.rows, row + shape.num_tokens()) << text;
  EXPECT_FALSE(c.prefix.mask.causal) << text;
  EXPECT_EQ(c.own.mask, shape.mask) << text;
  EXPECT_TRUE(c.own.shared.empty() && c.prefix.shared.empty()) << text;
  ASSERT_EQ(c.own.batch.size(), shape.batch.size()) << text;
  for (std::size_t b = 0; b < shape.batch.size(); ++b) {
    std::int32_t prefix = 0;
    for (const SharedPrefix& s : shape.shared) {
      const auto at = static_cast<std::int32_t>(b);
      if (at >= s.first && at < s.first + s.count) prefix = s.tokens;
    }
    EXPECT_EQ(c.own.batch[b], (Request{shape.batch[b].q_len, shape.batch[b].kv_len - prefix})) << text << b;
    // A member may turn out to share nothing: its table has room for all of it.
    EXPECT_GE(c.own_columns * shape.block_size, shape.batch[b].kv_len) << text;
  }
}

TEST(Cascade, CutsEveryPrefixWithoutGapsOrOverlap) {
  for (const char* text :
       {"decode latent h16 32q1s9k prefix8k",
        "decode latent h16 q1s70_4q2s700_q1s0_2q1s5k prefix640@1+4_4k@6+2",
        "decode latent h3 9q1s2k prefix1984", "decode latent h128 32q1s9k prefix8k b16",
        "decode latent h24 l256 r32 p64 v64 5q1s700 prefix690 b1", "decode latent h20 6q1s1000 prefix960 b48",
        "decode latent h16 100q1s300 prefix256 b128"}) {
    expect_sound(text, false);
    expect_sound(text, true);
  }
}

TEST(Cascade, GivesEveryClusterAStretch) {
  // 512 rows are four tiles of 128: sixteen stretches of 512 keys are 64 pieces of work for 66 clusters of two.
  const Cascade one = cascade_of("decode latent h16 32q1s9k prefix8k");
  EXPECT_EQ(one.groups[0].stretches, 16);
  EXPECT_EQ(one.groups[0].stretch, 512);
  // 4096 rows are 32 tiles: two stretches each.
  EXPECT_EQ(cascade_of("decode latent h128 32q1s9k prefix8k").groups[0].stretches, 2);
  // A longer prefix gets more of them.
  const Cascade two = cascade_of("decode latent h16 16q1s2k_16q1s9k prefix1k@0+16_8k@16+16");
  EXPECT_GT(two.groups[1].stretches, 4 * two.groups[0].stretches);
  EXPECT_EQ(cascade_of("decode latent h16 32q1s300 prefix256").groups[0].stretches, 1)
      << "short ones are not cut";
}

TEST(Cascade, LeavesWholeWhatTheSmallWorkKernelSharesOutItself) {
  EXPECT_EQ(cascade_of("decode latent h16 32q1s9k prefix8k", true).prefix.batch,
            (std::vector<Request>{{32, 8192}}));
}

TEST(Cascade, PaysWhereManyFewRowsShareMuch) {
  const auto pays = [](const char* text) { return cascade_pays(parse_shape(text), kSms); };
  EXPECT_TRUE(pays("decode latent h16 32q1s9k prefix8k"));
  EXPECT_TRUE(pays("decode latent h16 128q1s9k prefix8k"));
  EXPECT_FALSE(pays("decode latent h16 4q1s9k prefix8k")) << "too few";
  EXPECT_FALSE(pays("decode latent h16 32q1s1k prefix512")) << "too short";
  EXPECT_FALSE(pays("decode latent h128 32q1s9k prefix8k")) << "128 rows are as many products stacked or not";
  EXPECT_FALSE(pays("decode latent h16 128q1s9k prefix8k@5+1")) << "a group of one";
  EXPECT_TRUE(pays("decode latent h16 128q1s9k prefix8k@0+64_8k@64+64"));
}

std::string why_not(const char* text) {
  return supports_cascade(parse_shape(text), 1 << 20).why;
}

TEST(Cascade, SaysWhatItCannotShare) {
  EXPECT_EQ(why_not("decode latent h16 32q1s9k prefix8k"), "");
  EXPECT_EQ(why_not("decode latent h16 32q1s9k w512 prefix8k"),
            "a shared prefix of 8192 tokens is read once under a mask without a window, not 512");
  EXPECT_EQ(why_not("decode latent h128 9000q1s65 prefix64"),
            "requests that share a prefix have at most 1048576 rows (queries x heads) together, not 1152000");
  std::string many = "decode latent h1 130q1s65 prefix";
  for (int i = 0; i < 65; ++i) many += (i > 0 ? "_64@" : "64@") + std::to_string(2 * i) + "+2";
  EXPECT_EQ(why_not(many.c_str()), "at most 64 prefixes are shared in one batch, not 65");
}

}  // namespace
