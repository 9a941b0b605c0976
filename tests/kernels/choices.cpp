// SPDX-License-Identifier: Apache-2.0
// What device backends decide on the host. Needs no GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/arch_table.hpp"
#include "common/fast_divide.hpp"
#include "latent/counters.hpp"
#include "latent/heuristics.hpp"
#include "latent/table.hpp"
#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "splitkv/heuristics.hpp"
#include "verify/suite.hpp"

namespace {

using namespace mla;
using kernels::ArchMatch;
using kernels::image_rank;
using kernels::splitkv::choose_parts;
using kernels::splitkv::choose_ring;
using kernels::splitkv::least_tiles;
using kernels::splitkv::Ring;

TEST(ArchImages, RunWhereTheArchitectureAllows) {
  EXPECT_GT(image_rank(80, ArchMatch::kFrom, 86), 0);
  EXPECT_GT(image_rank(80, ArchMatch::kFrom, 120), 0) << "through PTX";
  EXPECT_EQ(image_rank(80, ArchMatch::kFrom, 75), 0);
  EXPECT_GT(image_rank(90, ArchMatch::kExact, 90), 0);
  EXPECT_EQ(image_rank(90, ArchMatch::kExact, 100), 0);
  EXPECT_GT(image_rank(100, ArchMatch::kFamily, 103), 0);
  EXPECT_EQ(image_rank(100, ArchMatch::kFamily, 120), 0);
}

TEST(ArchImages, MachineCodeBeatsPtxAndLaterBeatsEarlier) {
  EXPECT_GT(image_rank(90, ArchMatch::kExact, 90), image_rank(80, ArchMatch::kFrom, 90));
  EXPECT_GT(image_rank(89, ArchMatch::kFrom, 89), image_rank(80, ArchMatch::kFrom, 89));
  EXPECT_GT(image_rank(120, ArchMatch::kFrom, 120), image_rank(80, ArchMatch::kFrom, 120));
}

std::int64_t parts(std::vector<std::int64_t> tiles, std::int64_t row_groups, std::int64_t slots) {
  return choose_parts({.tiles = tiles, .row_groups = row_groups, .slots = slots});
}

TEST(SplitkvParts, EqualRequestsStayWholeWhereThatWastesLittle) {
  EXPECT_EQ(parts(std::vector<std::int64_t>(128, 256), 1, 132), 128);
  EXPECT_EQ(parts(std::vector<std::int64_t>(128, 171), 2, 132), 64);
  EXPECT_EQ(parts(std::vector<std::int64_t>(264, 100), 1, 132), 132);
  EXPECT_EQ(parts(std::vector<std::int64_t>(100, 100), 1, 132), 100) << "one part each is all that fits";
}

TEST(SplitkvParts, FewRequestsAreCutAlike) {
  EXPECT_EQ(parts({256}, 1, 132), 256 / least_tiles(32));
  EXPECT_EQ(parts({2000}, 1, 132), 132);
  EXPECT_EQ(parts(std::vector<std::int64_t>(8, 128), 1, 132), 8 * 16);
  EXPECT_EQ(parts({1}, 1, 132), 1);
  EXPECT_EQ(parts({}, 1, 132), 1);
}

TEST(SplitkvParts, RaggedRequestsShareAllThereIs) {
  EXPECT_EQ(parts({1, 900, 30}, 1, 132), 132);
  EXPECT_EQ(parts({1, 900, 30}, 4, 132), 33);
  EXPECT_EQ(parts({1, 2}, 1, 132), 1);
}

TEST(SplitkvParts, NeverFewerThanOne) {
  EXPECT_EQ(parts({10, 20}, 1000, 132), 1);
  EXPECT_EQ(parts(std::vector<std::int64_t>(7, 1), 500, 132), 1);
}

TEST(SplitkvRing, FitsTheSharedMemory) {
  const auto ring = [](std::int64_t fixed, std::int64_t stage, std::int64_t limit, int blocks, int most) {
    const Ring r = choose_ring(fixed, stage, limit, blocks, most);
    return std::pair(r.blocks, r.stages);
  };
  EXPECT_EQ(ring(1000, 100, 1550, 1, 8), std::pair(1, 5));
  EXPECT_EQ(ring(1000, 100, 1550, 1, 4), std::pair(1, 4));
  EXPECT_EQ(ring(1000, 100, 1199, 1, 4), std::pair(0, 0)) << "one stage is no ring";
  EXPECT_EQ(ring(2000, 100, 1000, 1, 4), std::pair(0, 0));
  // Two blocks share what a multiprocessor has: (5000 + 1024) / 2 - 1024 = 1988 bytes each.
  EXPECT_EQ(ring(1000, 100, 5000, 2, 20), std::pair(2, 9));
  EXPECT_EQ(ring(1000, 600, 5000, 2, 20), std::pair(1, 6))
      << "with one stage each they would wait for every tile";
}

using kernels::latent::choose_small;
using kernels::latent::Clusters;

Clusters latent(std::vector<std::int64_t> keys, std::int64_t row_groups = 1, std::int32_t splits = 0) {
  return choose_small({.keys = keys, .row_groups = row_groups, .splits = splits});
}

TEST(LatentClusters, OneRequestGetsAsManyAsItsKeysAreWorth) {
  EXPECT_EQ(latent({1}), (Clusters{1, 1, 1}));
  EXPECT_EQ(latent({1024}), (Clusters{1, 32, 32}));
  EXPECT_EQ(latent({4096}), (Clusters{1, 64, 64}));
  EXPECT_EQ(latent({8192}), (Clusters{1, 128, 128}));
  EXPECT_EQ(latent({131072}), (Clusters{1, 128, 128})) << "as many slices as parts";
}

TEST(LatentClusters, AlikeRequestsOwnCtasThatKeepTheGpuBusy) {
  const auto alike = [](std::size_t requests, std::int64_t keys, std::int64_t row_groups = 1) {
    return latent(std::vector<std::int64_t>(requests, keys), row_groups);
  };
  EXPECT_EQ(alike(3, 32768), (Clusters{1, 132, 44}));
  EXPECT_EQ(alike(8, 4096), (Clusters{1, 128, 16}));
  EXPECT_EQ(alike(32, 1024), (Clusters{1, 128, 4}));
  EXPECT_EQ(alike(128, 4096), (Clusters{1, 128, 1}));
  EXPECT_EQ(alike(16, 32), (Clusters{1, 16, 1})) << "no more than the keys are worth";
  EXPECT_EQ(alike(1, 8192, 4), (Clusters{1, 32, 32}));
  EXPECT_EQ(alike(100, 4096), (Clusters{1, 100, 1})) << "enough to draw all that the memory gives";
  EXPECT_EQ(alike(70, 4096), (Clusters{1, 132, 0})) << "62 multiprocessors would be idle";
  EXPECT_EQ(alike(200, 4096), (Clusters{1, 132, 0})) << "more than there are multiprocessors";
  EXPECT_EQ(latent({100, 9000}).per_request, 0) << "not alike";
}

TEST(LatentClusters, AreOneWave) {
  for (const std::int64_t requests : {1, 2, 4, 7, 8, 15, 16, 31, 32, 100, 1000}) {
    for (const std::int64_t row_groups : {1, 2, 3, 4, 8, 16, 64, 132}) {
      const Clusters c =
          latent(std::vector<std::int64_t>(static_cast<std::size_t>(requests), 4096), row_groups);
      EXPECT_EQ(c.size, 1);
      EXPECT_LE(c.count * row_groups, 132) << requests << " " << row_groups;
      EXPECT_GE(c.count, 1);
      EXPECT_LE(c.count * row_groups * kernels::latent::kCounterWords, kernels::latent::kCountersPerPlan);
    }
  }
  EXPECT_EQ(latent({5000}, 1000), (Clusters{1, 1, 0})) << "more row groups than fit: a CTA each";
}

TEST(LatentClusters, TakeTheCallersSplits) {
  EXPECT_EQ(latent({5000, 3}, 1, 1), (Clusters{1, 2, 1}));
  EXPECT_EQ(latent({5000, 3}, 1, 8), (Clusters{1, 16, 8}));
  EXPECT_EQ(latent({5000}, 1, 132), (Clusters{1, 132, 132}));
  EXPECT_EQ(latent({5000}, 1, 100000), (Clusters{1, 512, 512})) << "as many as can be counted";
  EXPECT_EQ(latent(std::vector<std::int64_t>(400, 64), 4, 64), (Clusters{1, 400, 1})) << "too many to count";
}

TEST(LatentTile, IsAsWideAsTheRowsUnlessKeysAreFew) {
  using kernels::latent::small_rows;
  const std::vector<std::int64_t> many(128, 4096);
  const std::vector<std::int64_t> some(8, 4096);
  const std::vector<std::int64_t> few{8192};
  EXPECT_EQ(small_rows(many, 16), 16);
  EXPECT_EQ(small_rows(few, 32), 16);
  EXPECT_EQ(small_rows(some, 32), 32);
  EXPECT_EQ(small_rows(few, 64), 16);
  EXPECT_EQ(small_rows(few, 128), 32);
  EXPECT_EQ(small_rows({}, 128), 16) << "no request at all";
}

TEST(LatentTile, IsWideInItsSuiteOfCases) {
  const std::string file = MLA_SOURCE_DIR "/configs/verify/wide-decode.txt";
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const verify::Case& c : verify::parse_cases(text, file)) {  // throws where there is none
    const std::vector<std::int64_t> keys = kernels::latent::keys_of(c.shape);
    const std::int64_t rows = kernels::latent::most_rows(c.shape);
    EXPECT_EQ(kernels::latent::small_rows(keys, rows), 32) << to_text(c);
    EXPECT_FALSE(kernels::latent::prefers_large(keys, rows, 132)) << to_text(c);
  }
}

TEST(LatentInvariant, PartsDependOnEachLengthAlone) {
  using kernels::latent::choose_invariant;
  using kernels::latent::fixed_parts;
  const auto parts = [](std::vector<std::int64_t> keys) { return fixed_parts(keys); };
  EXPECT_EQ(parts({1}), 1);
  EXPECT_EQ(parts({256}), 1);
  EXPECT_EQ(parts({257}), 2);
  EXPECT_EQ(parts({1 << 20}), 128) << "no more";
  EXPECT_EQ(parts({257, 1, 8192}), 2 + 1 + 32);
  const std::vector<std::int64_t> many(128, 4096);
  EXPECT_EQ(choose_invariant({.keys = many}), (Clusters{1, 132, 0}));
  EXPECT_EQ(choose_invariant({.keys = many, .row_groups = 4}), (Clusters{1, 33, 0}));
  const std::vector<std::int64_t> one{8192};
  EXPECT_EQ(choose_invariant({.keys = one}), (Clusters{1, 32, 0})) << "a CTA a part";
}

using kernels::latent::choose_large;
using kernels::latent::prefers_large;

std::vector<std::int64_t> alike(std::size_t requests, std::int64_t keys) {
  return std::vector<std::int64_t>(requests, keys);
}
Clusters large(const std::vector<std::int64_t>& keys, std::int32_t size, std::int64_t row_groups = 1,
               std::int32_t splits = 0) {
  return choose_large({.keys = keys, .row_groups = row_groups, .splits = splits}, size);
}

TEST(LatentLarge, EqualRequestsAreNotCutIfTheWaveStaysNearlyFull) {
  EXPECT_EQ(large(alike(128, 4096), 1), (Clusters{1, 128, 0})) << "of 132";
  EXPECT_EQ(large(alike(64, 4096), 1), (Clusters{1, 128, 0})) << "two ranges each";
  EXPECT_EQ(large(alike(32, 4096), 2), (Clusters{2, 64, 0})) << "of 66 pairs";
  EXPECT_EQ(large(alike(100, 4096), 1), (Clusters{1, 132, 0})) << "100 would leave a quarter idle";
  EXPECT_EQ(large(alike(32, 4096), 2, 2), (Clusters{2, 32, 0})) << "two row groups share the 64";
  EXPECT_EQ(large({40960, 4096}, 1), (Clusters{1, 132, 0})) << "not equal";
}

TEST(LatentLarge, HasNoRangeWithoutABlock) {
  EXPECT_EQ(large({130}, 1), (Clusters{1, 3, 0}));
  EXPECT_EQ(large({1}, 2, 3), (Clusters{2, 1, 0}));
}

TEST(LatentLarge, TakesTheCallersSplitsWhileTheyCanBeCounted) {
  EXPECT_EQ(large({5000, 3}, 1, 1, 4), (Clusters{1, 8, 4}));
  EXPECT_EQ(large(alike(300, 64), 2, 1, 4), (Clusters{2, 1200, 4}));
  EXPECT_EQ(large(alike(600, 64), 2, 1, 4), (Clusters{2, 600, 1})) << "1200 counters of 1024";
  EXPECT_EQ(large({100000}, 1, 1, 1000), (Clusters{1, 512, 512})) << "parts of a request that can be counted";
}

TEST(LatentLarge, IsForManyRequestsOfManyRows) {
  EXPECT_TRUE(prefers_large(alike(32, 4096), 128, 132));
  EXPECT_TRUE(prefers_large(alike(32, 4096), 64, 132));
  EXPECT_TRUE(prefers_large(alike(128, 1024), 64, 132));
  EXPECT_FALSE(prefers_large(alike(1, 8192), 128, 132));
  EXPECT_FALSE(prefers_large(alike(32, 512), 64, 132)) << "what is fixed costs more than the keys";
  EXPECT_FALSE(prefers_large(alike(128, 8192), 32, 132)) << "padding to 64 rows costs more than it saves";
  EXPECT_FALSE(prefers_large({}, 128, 132));
}

TEST(LatentLarge, IsForFewRequestsOfManyKeys) {
  // Measured, us, large against small: 31.8 and 36.1; 34.5 and 39.0; 43.8 and 61.8; 20.7 and 17.0; 23.6 and 19.6.
  EXPECT_TRUE(prefers_large(alike(1, 32768), 128, 132));
  EXPECT_TRUE(prefers_large(alike(8, 8192), 64, 132));
  EXPECT_TRUE(prefers_large(alike(8, 8192), 128, 132));
  EXPECT_TRUE(prefers_large(alike(32, 1024), 64, 132)) << "23.2 and 27.5 us";
  EXPECT_FALSE(prefers_large(alike(1, 8192), 128, 132));
  EXPECT_FALSE(prefers_large(alike(1, 16384), 64, 132));
}

TEST(LatentLarge, IsWhatItsSuiteOfCasesChooses) {
  const std::string file = MLA_SOURCE_DIR "/configs/verify/large-decode.txt";
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const verify::Case& c : verify::parse_cases(text, file)) {  // throws where there is none
    EXPECT_TRUE(prefers_large(kernels::latent::keys_of(c.shape), kernels::latent::most_rows(c.shape), 132))
        << to_text(c);
  }
}

TEST(LatentCounters, AreAPlacePerWorkspaceAndComeBack) {
  using kernels::latent::CounterPlaces;
  std::vector<std::byte> memory(kernels::latent::kMostPlans + 1);
  {
    const CounterPlaces one;
    const CounterPlaces other;
    const std::int32_t place = one.place_for(&memory[0]);
    EXPECT_EQ(one.place_for(&memory[0]), place);
    EXPECT_NE(one.place_for(&memory[1]), place) << "calls with two workspaces may overlap";
    EXPECT_NE(other.place_for(&memory[0]), place);
  }
  const CounterPlaces all;
  for (std::int32_t i = 0; i < kernels::latent::kMostPlans; ++i) {
    EXPECT_LT(all.place_for(&memory[static_cast<std::size_t>(i)]), kernels::latent::kMostPlans);
  }
  EXPECT_THROW((void)all.place_for(&memory.back()), Error);
}

// n / d by a product and a shift must be exact for every length and block size; the hard cases are next to
// multiples of d.
TEST(FastDivide, IsExact) {
  using kernels::FastDivide;
  constexpr std::int32_t kLargest = 2147483647;
  for (const std::int32_t d : {1,
                               2,
                               3,
                               5,
                               7,
                               16,
                               48,
                               63,
                               64,
                               65,
                               100,
                               480,
                               641,
                               4096,
                               6700417,
                               (1 << 30) - 1,
                               1 << 30,
                               (1 << 30) + 1,
                               kLargest - 1,
                               kLargest}) {
    const FastDivide by(d);
    for (std::int64_t k = 0; k <= 2000; ++k) {
      const std::int64_t step = std::max<std::int64_t>(1, kLargest / d / 2000);
      for (const std::int64_t n : {k * step * d - 1, k * step * d, k * step * d + 1, kLargest - k, k}) {
        if (n < 0 || n > kLargest) continue;
        ASSERT_EQ(by.quotient(static_cast<std::int32_t>(n)), n / d) << n << " / " << d;
      }
    }
  }
}

}  // namespace
