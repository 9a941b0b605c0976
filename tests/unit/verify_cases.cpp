// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "expect_error.hpp"
#include "verify/axes.hpp"
#include "verify/case.hpp"
#include "verify/pairwise.hpp"
#include "verify/suite.hpp"

namespace mla::verify {
namespace {

Case with(void (*change)(Case&)) {
  Case c;
  c.shape.batch = {{1, 5}};
  change(c);
  return c;
}

TEST(CaseText, OnlyWhatDiffersIsWritten) {
  const Case plain = with([](Case&) {});
  EXPECT_EQ(to_text(plain), mla::to_text(plain.shape));
  const Case c = with([](Case& x) {
    x.values = ValueKind::kDominant;
    x.num_splits = 7;
    x.seed = 12;
  });
  EXPECT_EQ(to_text(c), mla::to_text(c.shape) + " values=dominant splits=7 seed=12");
}

TEST(CaseText, EveryFieldComesBack) {
  for (const auto change : std::initializer_list<void (*)(Case&)>{
           [](Case& c) { c.values = ValueKind::kAlternating; }, [](Case& c) { c.score_std = 0.01; },
           [](Case& c) { c.index = IndexKind::kOutside; }, [](Case& c) { c.poison = Poison::kMaximum; },
           [](Case& c) { c.permuted = false; }, [](Case& c) { c.strided = true; },
           [](Case& c) { c.spare_columns = 9; }, [](Case& c) { c.first_block = 58254; },
           [](Case& c) { c.lse = false; }, [](Case& c) { c.num_splits = 32; },
           [](Case& c) { c.seed = UINT64_MAX; }, [](Case& c) { c.shape.mask.window = 4; }}) {
    const Case c = with(change);
    EXPECT_EQ(parse_case(to_text(c)), c) << to_text(c);
  }
}

TEST(CaseText, SuiteCasesComeBack) {
  for (const Case& c : make_suite("quick", {}, 3).cases) ASSERT_EQ(parse_case(to_text(c)), c) << to_text(c);
}

TEST(CaseText, MistakesAreNamed) {
  expect_error([] { return parse_case("decode 1q1s5 values=strange"); }, ErrorCode::kParse,
               {"values=strange", "normal"});
  expect_error([] { return parse_case("decode 1q1s5 splits=x"); }, ErrorCode::kParse, {"splits=x"});
  expect_error([] { return parse_case("decode 1q1s5 splits=99999999999"); }, ErrorCode::kParse,
               {"splits=99999999999"});
  expect_error([] { return parse_case("decode 1q1s5 strided=maybe"); }, ErrorCode::kParse, {"yes or no"});
  expect_error([] { return parse_case("decode 1q1s5 h0x"); }, ErrorCode::kParse, {"h0x"});
  try {
    (void)parse_case("decode 1q1s5 posion=nan");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.hint(), "did you mean 'poison'?");
  }
  const auto refused = [](const char* text) {
    return [text] {
      validate(parse_case(text));
      return 0;
    };
  };
  expect_error(refused("decode 1q1s5 score_std=-1"), ErrorCode::kInvalidArgument, {"score_std is -1"});
  expect_error(refused("decode 1q1s5 score_std=nan"), ErrorCode::kInvalidArgument, {"score_std is nan"});
  expect_error(refused("decode 1q1s5 splits=-1"), ErrorCode::kInvalidArgument, {"splits is -1"});
  expect_error(refused("decode 1q1s5 spare_columns=-2"), ErrorCode::kInvalidArgument,
               {"spare_columns is -2"});
  expect_error(refused("decode 1q1s5 first_block=-2"), ErrorCode::kInvalidArgument, {"first_block is -2"});
}

TEST(ParseCases, LinesAreCountedAndCommentsSkipped) {
  const std::vector<Case> cases = parse_cases("# two cases\n\ndecode 1q1s5\ndecode 2q1s7 seed=4\n", "file");
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[1].seed, 4U);
  expect_error([] { return parse_cases("decode 1q1s5\ndecode 1q1s5 nothing=1\n", "my.cases"); },
               ErrorCode::kParse, {"my.cases:2:", "nothing=1"});
}

// ---- pairwise
// ---------------------------------------------------------------------------------------------------

std::set<std::vector<int>> pairs_of(const PairwiseDesign& design) {
  std::set<std::vector<int>> pairs;
  for (const std::vector<int>& row : design.rows) {
    for (int a = 0; a < static_cast<int>(row.size()); ++a) {
      for (int b = a + 1; b < static_cast<int>(row.size()); ++b) {
        pairs.insert({a, row[static_cast<std::size_t>(a)], b, row[static_cast<std::size_t>(b)]});
      }
    }
  }
  return pairs;
}

TEST(Pairwise, EveryPairStandsInSomeRow) {
  const std::vector<int> levels{3, 4, 2, 5};
  const PairwiseDesign design = pairwise(
      levels, [](std::span<const int>) { return true; }, 1);
  EXPECT_EQ(design.pairs, 3 * 4 + 3 * 2 + 3 * 5 + 4 * 2 + 4 * 5 + 2 * 5);
  EXPECT_EQ(design.covered, design.pairs);
  EXPECT_EQ(static_cast<std::int64_t>(pairs_of(design).size()), design.pairs);
  EXPECT_GE(design.rows.size(), 20U) << "the two largest axes alone need as many";
  EXPECT_LE(design.rows.size(), 30U);
}

TEST(Pairwise, ForbiddenPairsAreLeftOutAndTheRestCovered) {
  const auto allowed = [](std::span<const int> row) { return !(row[0] == 1 && row[1] == 2); };
  const std::vector<int> levels{3, 3, 3};
  const PairwiseDesign design = pairwise(levels, allowed, 1);
  EXPECT_EQ(design.covered, design.pairs - 1);
  ASSERT_EQ(design.open.size(), 1U);
  EXPECT_EQ(design.open[0].axis_a, 0U);
  EXPECT_EQ(design.open[0].level_a, 1);
  EXPECT_EQ(design.open[0].axis_b, 1U);
  EXPECT_EQ(design.open[0].level_b, 2);
  for (const auto& row : design.rows) EXPECT_TRUE(allowed(row));
}

TEST(Pairwise, TheSameSeedGivesTheSameRows) {
  const std::vector<int> levels{4, 4, 4, 4};
  const auto any = [](std::span<const int>) { return true; };
  EXPECT_EQ(pairwise(levels, any, 7).rows, pairwise(levels, any, 7).rows);
}

// ---- suites
// -----------------------------------------------------------------------------------------------------

TEST(Suite, QuickHasWhatTheGridPromises) {
  const Suite suite = make_suite("quick", backends(), 1);
  std::set<int> latent_widths, q_lens, blocks, windows;
  std::set<std::int32_t> lengths, splits;
  std::set<CacheFormat> formats;
  std::set<IndexKind> indexes;
  std::set<QuerySpace> spaces;
  for (const Case& c : suite.cases) {
    validate(c);
    latent_widths.insert(c.shape.dims.latent_width());
    blocks.insert(c.shape.block_size);
    formats.insert(c.shape.cache);
    spaces.insert(c.shape.space);
    splits.insert(c.num_splits);
    if (c.shape.topk > 0) indexes.insert(c.index);
    if (c.shape.mask.window) windows.insert(*c.shape.mask.window);
    for (const Request& r : c.shape.batch) {
      lengths.insert(r.kv_len);
      q_lens.insert(r.q_len);
    }
  }
  for (const int width : {576, 288, 320}) EXPECT_TRUE(latent_widths.contains(width)) << width;
  for (const int q_len : {1, 2, 3, 4}) EXPECT_TRUE(q_lens.contains(q_len)) << q_len;
  for (const int n : {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129}) EXPECT_TRUE(lengths.contains(n)) << n;
  for (const int n : {1, 2, 3, 32}) EXPECT_TRUE(splits.contains(n)) << n;
  EXPECT_EQ(indexes.size(), 7U);
  EXPECT_GE(windows.size(), 4U);
  EXPECT_GE(blocks.size(), 5U);
  EXPECT_EQ(spaces.size(), 2U);
  for (const CacheFormat f : all_cache_formats()) EXPECT_TRUE(formats.contains(f)) << name_of(f);
  EXPECT_GE(static_cast<double>(suite.covered), 0.99 * static_cast<double>(suite.pairs));
}

/// A pair that no case has is one that cannot be, and the suite says why.
TEST(Suite, EveryPairIsTriedOrExplained) {
  for (const char* name : {"quick", "full"}) {
    SCOPED_TRACE(name);
    const Suite suite = make_suite(name, backends(), 1);
    EXPECT_EQ(suite.covered + std::ssize(suite.left_out), suite.pairs);
    for (const PairLeftOut& pair : suite.left_out) {
      EXPECT_NE(pair.why, "no case with both was found") << pair.first << ", " << pair.second;
      EXPECT_FALSE(pair.why.empty()) << pair.first << ", " << pair.second;
    }
  }
}

TEST(Suite, CasesComeCheapestFirst) {
  const Suite suite = make_suite("quick", {}, 1);
  for (std::size_t i = 1; i < suite.cases.size(); ++i) {
    EXPECT_LE(work_of(suite.cases[i - 1]), work_of(suite.cases[i])) << i;
  }
}

TEST(Suite, FullGoesFurther) {
  const Suite full = make_suite("full", {}, 1);
  std::int32_t longest = 0;
  for (const Case& c : full.cases) {
    for (const Request& r : c.shape.batch) longest = std::max(longest, r.kv_len);
  }
  EXPECT_GE(longest, 8193);
}

TEST(Suite, UnknownNamesGetASuggestion) {
  try {
    (void)make_suite("quik", {}, 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.hint(), "did you mean 'quick'?");
  }
}

TEST(CaseSource, DrawsTheSameCaseForTheSameSeedWithinTheWork) {
  const CaseSource source(false, {}, 1e6);
  std::set<std::string> texts;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Case c = source.random_case(seed);
    EXPECT_EQ(c, source.random_case(seed));
    EXPECT_LE(work_of(c), 1e6);
    validate(c);
    texts.insert(to_text(c));
  }
  EXPECT_EQ(texts.size(), 50U);
}

}  // namespace
}  // namespace mla::verify
