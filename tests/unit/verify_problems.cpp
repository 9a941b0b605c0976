// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "expect_error.hpp"
#include "verify/host_tensor.hpp"
#include "verify/problem.hpp"
#include "verify/stage.hpp"

namespace mla::verify {
namespace {

Case base_case() {
  return parse_case(
      "decode latent h2 l128 r8 p16 v24 2q1s35_q3s3_q1s0 causal b16 q:bf16 out:bf16 cache:bf16");
}

TEST(HostTensor, GapsAreOutsideEveryRow) {
  const std::int64_t extents[] = {2, 3, 4};
  HostTensor t = make_host_tensor(DType::kF32, extents, 5, kNanByte);
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_EQ(t.stride[1], 9);
  EXPECT_EQ(t.stride[0], 3 * 9 + 5);
  std::vector<double> values(24);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  store(t, values);
  EXPECT_EQ(load(t), values);
  EXPECT_TRUE(gaps_hold(t, kNanByte));
  for (const std::int64_t gap : {std::int64_t{4}, std::int64_t{8}, std::int64_t{27}, t.stride[0] * 2 - 1}) {
    HostTensor touched = t;
    store_element(touched.bytes.data(), touched.dtype, gap, 0.0);
    EXPECT_FALSE(gaps_hold(touched, kNanByte)) << gap;
  }
}

TEST(HostTensor, FillIsNanInEveryFloatingType) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3}) {
    const std::int64_t extents[] = {1};
    EXPECT_TRUE(std::isnan(load(make_host_tensor(t, extents, 0, kNanByte))[0])) << name_of(t);
  }
}

TEST(Problem, ReadsBackThroughTheBlockTableWhatTheReferenceSees) {
  for (const CacheFormat format : all_cache_formats()) {
    for (const bool strided : {false, true}) {
      Case c = base_case();
      c.shape.cache = format;
      c.strided = strided;
      const Problem problem(c);
      Stage stage(problem, host_memory());
      EXPECT_EQ(reference::gather_latent(stage.args().cache, c.shape.dims, problem.seq_lens()),
                problem.values().latent)
          << name_of(format) << strided;
    }
  }
}

TEST(Problem, SharedPrefixesAreTheSameBlocksAndKeys) {
  for (const CacheFormat format : all_cache_formats()) {
    Case c = parse_case(
        "decode latent h2 l128 r8 p16 v24 q1s5_q1s35_q3s34_q1s32_q1s0_q1s20_q1s50 causal prefix32@1+3_16@5+2 "
        "b16 "
        "q:bf16 out:bf16 cache:bf16");
    c.shape.cache = format;
    const Problem problem(c);
    const std::vector<double> table = load(problem.block_table());
    const auto columns = static_cast<std::size_t>(problem.block_table().extent[1]);
    const auto entry = [&](std::size_t request, std::size_t column) {
      return table[request * columns + column];
    };
    std::set<double> distinct;
    for (const auto& [request, blocks] :
         std::vector<std::pair<std::size_t, std::size_t>>{{0, 1}, {1, 3}, {2, 3}, {3, 2}, {5, 2}, {6, 4}}) {
      for (std::size_t i = 0; i < blocks; ++i) distinct.insert(entry(request, i));
    }
    EXPECT_EQ(distinct.size(), 15U - 2 - 2 - 1) << "two members borrow two blocks each, one borrows one";
    for (const std::size_t member : {2, 3}) {
      for (const std::size_t column : {0, 1}) EXPECT_EQ(entry(member, column), entry(1, column));
    }
    EXPECT_EQ(entry(6, 0), entry(5, 0));
    EXPECT_NE(entry(2, 2), entry(1, 2));
    Stage stage(problem, host_memory());
    EXPECT_EQ(reference::gather_latent(stage.args().cache, c.shape.dims, problem.seq_lens()),
              problem.values().latent)
        << name_of(format);
  }
}

TEST(Problem, PermutedBlocksAreDistinctAndLeaveSomeUnused) {
  const Problem problem(base_case());
  const std::vector<double> table = load(problem.block_table());
  const std::int64_t columns = problem.block_table().extent[1];
  EXPECT_EQ(columns, 3 + 1) << "35 keys in blocks of 16, and a spare one";
  std::set<double> used;
  for (const std::int64_t place :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, columns, columns + 1, columns + 2, 2 * columns}) {
    used.insert(table[static_cast<std::size_t>(place)]);
  }
  EXPECT_EQ(used.size(), 7U);
  EXPECT_GT(problem.pool().num_blocks, 7);
  EXPECT_EQ(table[3], -1) << "spare columns name blocks that do not exist";
}

TEST(Problem, UnusedMemoryHoldsPoison) {
  Case c = base_case();
  c.poison = Poison::kInfinity;
  const Problem problem(c);
  const HostPool& pool = problem.pool();
  const auto values = static_cast<std::int64_t>(pool.bytes.size()) / 2;
  std::int64_t infinite = 0;
  for (std::int64_t i = 0; i < values; ++i) {
    infinite += std::isinf(load_element(pool.bytes.data(), DType::kBF16, i)) ? 1 : 0;
  }
  EXPECT_EQ(infinite, values - num_keys(c.shape) * c.shape.dims.latent_width());
}

TEST(Problem, TheSameCaseGivesTheSameBytesAndAnotherSeedOthers) {
  const Problem a(base_case());
  const Problem b(base_case());
  Case other = base_case();
  other.seed = 2;
  const Problem c(other);
  EXPECT_EQ(a.pool().bytes, b.pool().bytes);
  EXPECT_EQ(a.q().bytes, b.q().bytes);
  EXPECT_NE(a.q().bytes, c.q().bytes);
}

TEST(Problem, LargeInputsAreTheSameBitsAsSmallOnes) {
  // A value depends on its place alone: those of many tokens, made on several threads, begin with those of one.
  const auto queries = [](int tokens) {
    return Problem(parse_case("decode latent h64 l512 r64 p128 v128 q" + std::to_string(tokens) +
                              "s64 causal b64 q:bf16 out:bf16 cache:bf16 strided=yes seed=9"))
        .values()
        .q;
  };
  const std::vector<double> one = queries(1);
  const std::vector<double> many = queries(40);
  ASSERT_EQ(many.size(), 40 * one.size());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), many.begin()));
  EXPECT_EQ(std::count(many.begin(), many.end(), 0.0), 0) << "every element is written";
}

TEST(Problem, FarBlocksAreNotFilled) {
  Case c = base_case();
  c.first_block = std::int64_t{1} << 28;
  const Problem problem(c);
  EXPECT_LT(problem.pool().bytes.size(), std::size_t{1} << 20);
  EXPECT_GT(problem.pool().num_blocks, std::int64_t{1} << 28);
}

TEST(Problem, ScoresHaveTheDeviationAskedFor) {
  for (const char* space : {"latent", "head"}) {
    for (const double std : {0.01, 1.0, 8.0}) {
      Case c = parse_case(std::string("decode ") + space +
                          " h4 l64 r16 p32 v24 1q8s400 full b16 q:f64 out:f64 cache:f64");
      c.score_std = std;
      const Problem problem(c);
      const reference::MlaProblem p = problem.reference_problem();
      const bool head = c.shape.space == QuerySpace::kHead;
      const std::vector<double> q =
          head ? reference::absorb_query(p.dims, p.q, p.w_uk) : std::vector<double>(p.q.begin(), p.q.end());
      double squares = 0;
      const std::size_t width = 80, rows = q.size() / width, keys = 400;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t j = 0; j < keys; ++j) {
          double dot = 0;
          for (std::size_t d = 0; d < width; ++d) dot += q[r * width + d] * p.latent[j * width + d];
          squares += dot * dot * p.softmax_scale * p.softmax_scale;
        }
      }
      EXPECT_NEAR(std::sqrt(squares / static_cast<double>(rows * keys)) / std, 1.0, 0.1) << space << std;
    }
  }
}

TEST(Problem, ScaleIsNobodysDefault) {
  const Problem problem(base_case());
  const MlaDims& d = problem.shape().dims;
  for (const double wrong : {plain_softmax_scale(d), 1 / std::sqrt(d.latent_width()), 1.0}) {
    EXPECT_GT(std::abs(problem.values().softmax_scale / wrong - 1), 0.05);
  }
}

TEST(TokenIndex, KindsAreWhatTheySay) {
  const auto row = [](IndexKind kind) {
    Case c = parse_case("decode latent h1 l32 r0 p16 v24 1q1s20 topk8 b16");
    c.index = kind;
    return make_token_index(c);
  };
  const auto holes = [](const std::vector<std::int32_t>& r) {
    std::string text;
    for (const std::int32_t x : r) text += x >= 0 && x < 20 ? 'k' : '-';
    return text;
  };
  EXPECT_EQ(holes(row(IndexKind::kPlain)), "kkkkkkkk");
  EXPECT_EQ(holes(row(IndexKind::kFront)), "----kkkk");
  EXPECT_EQ(holes(row(IndexKind::kMiddle)), "kk----kk");
  EXPECT_EQ(holes(row(IndexKind::kEnd)), "kkkk----");
  EXPECT_EQ(holes(row(IndexKind::kNone)), "--------");
  EXPECT_EQ(holes(row(IndexKind::kOutside)), "k-kk-kk-");
  const std::vector<std::int32_t> twice = row(IndexKind::kDuplicates);
  EXPECT_EQ(std::set<std::int32_t>(twice.begin(), twice.end()).size(), 4U);
  const std::vector<std::int32_t> plain = row(IndexKind::kPlain);
  EXPECT_EQ(std::set<std::int32_t>(plain.begin(), plain.end()).size(), 8U);
}

TEST(Problem, WrongSizesAreNamed) {
  const Case c = base_case();
  Values values = make_values(c);
  values.q.pop_back();
  expect_error([&] { return Problem(c, values); }, ErrorCode::kInvalidArgument, {"q holds", "needs"});
  values = make_values(c);
  values.latent.push_back(0);
  expect_error([&] { return Problem(c, values); }, ErrorCode::kInvalidArgument, {"latent holds"});
  Case fp8 = c;
  fp8.shape.dims.kv_lora_rank = 40;
  fp8.shape.cache = CacheFormat::kFp8DsMla;
  expect_error([&] { return Problem(fp8); }, ErrorCode::kUnsupported, {"40"});
}

TEST(Stage, NoticesAChangedInput) {
  const Problem problem(base_case());
  Stage stage(problem, host_memory());
  EXPECT_EQ(stage.changed_input(), "");
  stage.args().cache.data[5] ^= std::byte{1};
  EXPECT_EQ(stage.changed_input(), "cache");
}

}  // namespace
}  // namespace mla::verify
