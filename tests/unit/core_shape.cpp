// SPDX-License-Identifier: Apache-2.0
#include "mla/shape.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "expect_error.hpp"
#include "mla/random.hpp"

namespace {

using mla::AttentionShape;
using mla::CounterRng;
using mla::ErrorCode;
using mla::Request;
using Batch = std::vector<Request>;
constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

TEST(Mask, SeesByItsDefinition) {
  const mla::Mask causal;
  EXPECT_TRUE(causal.sees(3, 8, 3));
  EXPECT_FALSE(causal.sees(3, 8, 4));
  EXPECT_FALSE(causal.sees(-1, 8, 0));
  const mla::Mask full{.causal = false};
  EXPECT_TRUE(full.sees(3, 8, 7));
  EXPECT_FALSE(full.sees(3, 8, 8));
  EXPECT_FALSE(full.sees(3, 8, -1));
  const mla::Mask window{.window = 2, .sink = 1};
  EXPECT_EQ(window.sees(5, 8, 0), true);  // the sink
  EXPECT_EQ(window.sees(5, 8, 1), false);
  EXPECT_EQ(window.sees(5, 8, 3), false);
  EXPECT_EQ(window.sees(5, 8, 4), true);  // the window counts the current key
  EXPECT_EQ(window.sees(5, 8, 5), true);
  EXPECT_EQ(window.sees(5, 8, 6), false);
}

TEST(Batch, Grammar) {
  EXPECT_EQ(mla::parse_batch("32q1s4k"), Batch(32, Request{1, 4096}));
  EXPECT_EQ(mla::parse_batch("q2k"), (Batch{{2048, 2048}}));
  EXPECT_EQ(mla::parse_batch("s4k"), (Batch{{1, 4096}}));
  EXPECT_EQ(mla::parse_batch("3s7"), Batch(3, Request{1, 7}));
  EXPECT_EQ(mla::parse_batch("q1s1m"), (Batch{{1, 1048576}}));
  EXPECT_EQ(mla::parse_batch("q1s0"), (Batch{{1, 0}}));
  EXPECT_EQ(mla::parse_batch("q0s5"), (Batch{{0, 5}}));
  EXPECT_EQ(mla::parse_batch("q1s2147483647"), (Batch{{1, kMax}}));
  Batch mixed(4, Request{2048, 2048});
  mixed.resize(68, Request{1, 8192});
  EXPECT_EQ(mla::parse_batch("4q2k_64q1s8k"), mixed);
  EXPECT_EQ(mla::parse_batch("q1s3_q1s3"), Batch(2, Request{1, 3}));
}

TEST(Batch, RangesAreDrawnFromTheSeed) {
  const Batch batch = mla::parse_batch("4000q1..3s1k..16k");
  std::set<std::int32_t> queries;
  double mean = 0;
  for (const Request& r : batch) {
    queries.insert(r.q_len);
    ASSERT_GE(r.kv_len, 1024);
    ASSERT_LE(r.kv_len, 16384);
    mean += r.kv_len / 4000.0;
  }
  EXPECT_EQ(queries, (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_NEAR(mean, 8704, 4 * 15361 / std::sqrt(12.0 * 4000));
  EXPECT_EQ(batch, mla::parse_batch("4000q1..3s1k..16k", 1));
  EXPECT_NE(batch, mla::parse_batch("4000q1..3s1k..16k", 2));
  // A request's draw depends on its place in the batch alone, not on how the groups are cut.
  EXPECT_EQ(batch, mla::parse_batch("1000q1..3s1k..16k_3000q1..3s1k..16k"));
  for (const Request& r : mla::parse_batch("50q1..8"))
    EXPECT_EQ(r.q_len, r.kv_len);  // prefill: one draw for both
  EXPECT_EQ(mla::parse_batch("2q1s7..7"), Batch(2, Request{1, 7}));
}

TEST(Batch, FormatSaysItBriefly) {
  EXPECT_EQ(mla::format_batch(Batch(32, Request{1, 4096})), "32q1s4k");
  EXPECT_EQ(mla::format_batch(Batch{{2048, 2048}, {1, 8192}, {1, 8192}}), "q2k_2q1s8k");
  EXPECT_EQ(mla::format_batch(Batch{{1, 1}}), "q1");
  EXPECT_EQ(mla::format_batch(Batch{{1, 0}, {0, 0}, {0, 3}}), "q1s0_q0s0_q0s3");
  EXPECT_EQ(mla::format_batch(Batch{}), "");
}

/// Lengths of every kind: small, a multiple of a suffix, anything.
std::int32_t some_length(const CounterRng& rng, std::uint64_t& i, std::int32_t low) {
  const std::int64_t unit = std::int64_t{1} << 10 * rng.between(i++, 0, 2);
  const std::int64_t most = rng.between(i++, 0, 1) == 0 ? 5 : kMax;
  return static_cast<std::int32_t>(std::max<std::int64_t>(low, rng.between(i++, 0, most / unit) * unit));
}

Batch some_batch(const CounterRng& rng, std::uint64_t& i) {
  Batch batch;
  for (std::int64_t groups = rng.between(i++, 1, 5); groups > 0; --groups) {
    Request r;
    r.q_len = some_length(rng, i, 0);
    r.kv_len = rng.between(i++, 0, 3) == 0 ? 0 : some_length(rng, i, r.q_len);
    batch.insert(batch.end(), static_cast<std::size_t>(rng.between(i++, 1, 4)), r);
  }
  return batch;
}

TEST(Batch, FormatAndParseAreInverse) {
  const CounterRng rng(5);
  std::uint64_t i = 0;
  for (int round = 0; round < 3000; ++round) {
    const Batch batch = some_batch(rng, i);
    const std::string text = mla::format_batch(batch);
    ASSERT_EQ(mla::parse_batch(text), batch) << text;
  }
}

TEST(Batch, RefusesWithTheReason) {
  const auto expect = [](std::string_view text, std::vector<std::string_view> parts) {
    expect_error([&] { return mla::parse_batch(text); }, ErrorCode::kParse, parts);
  };
  expect("", {"the batch is empty"});
  expect("_", {"batch group '' is empty"});
  expect("q1s4k_", {"batch group '' is empty"});
  expect("q1__q2", {"batch group '' is empty"});
  expect("32", {"batch group '32' has neither q nor s"});
  expect("q", {"batch group 'q': q is empty"});
  expect("q1s", {"batch group 'q1s': s is empty"});
  expect("q0", {"batch group 'q0' has q 0 and no s", "a prefill of no tokens"});
  expect("0q1", {"the count of requests is '0', too small", "1..10000000"});
  expect("xq1", {"batch group 'xq1' starts with 'x', which is not a plain count"});
  expect("2kq1", {"starts with '2k'"});
  expect("-1q1", {"starts with '-1'"});
  expect("qnan", {"batch group 'qnan': q is 'nan', not a number"});
  expect("q1sinf", {"batch group 'q1sinf': s is 'inf', not a number"});
  expect("q-1", {"q is '-1', negative"});
  expect("q1.5", {"q is '1.5', not whole"});
  expect("q1s4g", {"s is '4g' with an unknown suffix 'g'", "k (1024) or m (1048576)"});
  expect("q1q2", {"q is '1q2' with an unknown suffix 'q2'"});
  expect("q1s2s3", {"s is '2s3'"});
  expect("q1s2147483648", {"s is '2147483648', too large", "0..2147483647"});
  expect("q1s2048m", {"s is '2048m', too large"});
  expect("q99999999999999999999999", {"too large"});
  expect("q1s9..4", {"s is the range '9..4', whose end lies below its start"});
  expect("q1s..4", {"s is empty"});
  expect("q1s4..", {"s is empty"});
  expect("q1s1..2..3", {"s is '2..3', not whole"});
  expect("10000001q1", {"the count of requests is '10000001', too large"});
  expect("9999999q1_2q1", {"the batch has 10000001 requests or more, but at most 10000000"});
  expect(std::string(5000, 'q'), {"..."});
  expect("q1\x1b[2J", {"\\x1b"});
}

TEST(Shape, CanonicalText) {
  AttentionShape shape;
  shape.batch.assign(32, Request{1, 4096});
  const std::string text =
      "decode latent h128 l512 r64 p128 v128 32q1s4k causal b64 q:bf16 out:bf16 cache:bf16";
  EXPECT_EQ(mla::to_text(shape), text);
  EXPECT_EQ(mla::parse_shape(text), shape);
  shape.mask = {.causal = true, .window = 4096, .sink = 4};
  shape.topk = 2048;
  EXPECT_NE(mla::to_text(shape).find(" causal w4096 sink4 topk2048 b64 "), std::string::npos)
      << mla::to_text(shape);
  shape.mask = {.causal = false};
  EXPECT_NE(mla::to_text(shape).find(" full topk2048 "), std::string::npos) << mla::to_text(shape);
}

TEST(Shape, WordsInAnyOrderAndDefaults) {
  AttentionShape shape;
  shape.batch = {{1, 4096}};
  EXPECT_EQ(mla::parse_shape("s4k"), shape);
  shape.phase = mla::Phase::kPrefill;
  shape.space = mla::QuerySpace::kHead;
  shape.dims.num_heads = 16;
  shape.cache = mla::CacheFormat::kFp8DsMla;
  shape.q_dtype = mla::DType::kF16;
  EXPECT_EQ(mla::parse_shape("  cache:fp8_ds_mla\tq:fp16 q1s4k h16\n head prefill "), shape);
  EXPECT_EQ(mla::parse_shape(""), AttentionShape{});
  EXPECT_EQ(mla::parse_shape("w4k sink4").mask, (mla::Mask{.causal = true, .window = 4096, .sink = 4}));
}

TEST(Shape, TextAndParseAreInverse) {
  const CounterRng rng(6);
  std::uint64_t i = 0;
  constexpr mla::DType kTypes[] = {mla::DType::kF64, mla::DType::kF32, mla::DType::kF16, mla::DType::kBF16};
  const auto coin = [&] { return rng.between(i++, 0, 1) == 0; };
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(rng.between(i++, low, high));
  };
  for (int round = 0; round < 2000; ++round) {
    AttentionShape shape;
    shape.phase = coin() ? mla::Phase::kDecode : mla::Phase::kPrefill;
    shape.space = coin() ? mla::QuerySpace::kLatent : mla::QuerySpace::kHead;
    shape.dims = {pick(1, 200), pick(1, 1024), 2 * pick(0, 64), pick(1, 256), pick(1, 256)};
    shape.batch = some_batch(rng, i);
    if (coin()) shape.mask.window = some_length(rng, i, 1);
    if (shape.mask.window && coin()) shape.mask.sink = some_length(rng, i, 0);
    if (!shape.mask.window) shape.mask.causal = coin();
    if (coin()) shape.topk = some_length(rng, i, 0);
    shape.block_size = some_length(rng, i, 1);
    shape.q_dtype = kTypes[pick(0, 3)];
    shape.out_dtype = kTypes[pick(0, 3)];
    const auto formats = mla::all_cache_formats();
    shape.cache = formats[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(formats.size()) - 1))];
    const std::string text = mla::to_text(shape);
    ASSERT_EQ(mla::parse_shape(text), shape) << text;
    ASSERT_EQ(mla::to_text(mla::parse_shape(text)), text);
    ASSERT_NO_THROW(mla::validate(shape)) << text;
  }
}

TEST(Shape, RefusesWordsWithTheReason) {
  const auto expect = [](std::string_view text, ErrorCode code, std::vector<std::string_view> parts) {
    expect_error([&] { return mla::parse_shape(text); }, code, parts);
  };
  expect("decoed q1s4", ErrorCode::kParse, {"'decoed' is not a word of a shape"});
  expect("z9", ErrorCode::kParse, {"'z9' is not a word"});
  expect("k:bf16", ErrorCode::kParse, {"'k:bf16' is not a word"});
  expect("q:bf61", ErrorCode::kParse, {"'q:bf61'", "'bf61' is not an element type"});
  expect("cache:fp9", ErrorCode::kParse, {"'cache:fp9'", "'fp9' is not a cache format", "fp8_ds_mla"});
  expect("h", ErrorCode::kParse, {"'h': the number after h is empty"});
  expect("h1.5", ErrorCode::kParse, {"'h1.5'", "not whole"});
  expect("b-1", ErrorCode::kParse, {"'b-1'", "negative"});
  expect("w3000000000", ErrorCode::kParse, {"'w3000000000'", "too large"});
  expect("h16 h16", ErrorCode::kParse, {"'h16' says again"});
  expect("causal full", ErrorCode::kParse, {"'full' says again"});
  expect("q1s4 q1s5", ErrorCode::kParse, {"'q1s5' says again"});
  expect("q1s4x", ErrorCode::kParse, {"batch group 'q1s4x'"});
  expect("full w4", ErrorCode::kInvalidArgument, {"window 4 needs a causal mask"});
  expect("q8s4", ErrorCode::kInvalidArgument, {"batch[0].kv_len is 4", "8 new tokens"});
  expect("h0", ErrorCode::kInvalidArgument, {"num_heads is 0"});
}

TEST(Shape, ValidateNamesFieldAndValue) {
  const auto expect = [](auto change, std::vector<std::string_view> parts) {
    AttentionShape shape;
    shape.batch = {{1, 4}, {2, 8}};
    mla::validate(shape);
    change(shape);
    expect_error([&] { mla::validate(shape); }, ErrorCode::kInvalidArgument, parts);
  };
  expect([](AttentionShape& s) { s.batch.clear(); }, {"batch is empty"});
  expect([](AttentionShape& s) { s.batch[1].q_len = -3; }, {"batch[1].q_len is -3", ">= 0"});
  expect([](AttentionShape& s) { s.batch[1].kv_len = -1; }, {"batch[1].kv_len is -1", ">= 0"});
  expect([](AttentionShape& s) { s.batch[1].kv_len = 1; }, {"batch[1].kv_len is 1", "2 new tokens"});
  expect([](AttentionShape& s) { s.mask.window = 0; }, {"window is 0", ">= 1"});
  expect([](AttentionShape& s) { s.mask = {.causal = false, .window = 5}; },
         {"window 5 needs a causal mask"});
  expect([](AttentionShape& s) { s.mask.sink = 4; }, {"sink is 4", "no window"});
  expect([](AttentionShape& s) { s.mask = {.causal = true, .window = 4, .sink = -1}; },
         {"sink is -1", ">= 0"});
  expect([](AttentionShape& s) { s.topk = -1; }, {"topk is -1", ">= 0"});
  expect([](AttentionShape& s) { s.block_size = 0; }, {"block_size is 0", ">= 1"});
  expect([](AttentionShape& s) { s.dims.v_head_dim = 0; }, {"v_head_dim is 0"});
  AttentionShape padded;
  padded.batch = {{4, 0}, {0, 0}};  // as a captured graph pads
  EXPECT_NO_THROW(mla::validate(padded));
  AttentionShape full;
  full.batch = {{4, 2}};
  full.mask.causal = false;
  EXPECT_NO_THROW(mla::validate(full));
}

}  // namespace
