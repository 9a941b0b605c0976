// SPDX-License-Identifier: Apache-2.0
// What device backends decide on the host. Needs no GPU.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/arch_table.hpp"
#include "mla/backend.hpp"
#include "splitkv/heuristics.hpp"

namespace {

using namespace mla;
using kernels::ArchMatch;
using kernels::image_rank;
using kernels::splitkv::choose_parts;
using kernels::splitkv::choose_stages;
using kernels::splitkv::kLeastTiles;

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
  EXPECT_EQ(parts({256}, 1, 132), 256 / kLeastTiles);
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

TEST(SplitkvStages, FitTheSharedMemory) {
  EXPECT_EQ(choose_stages(1000, 100, 1550, 8), 5);
  EXPECT_EQ(choose_stages(1000, 100, 1550, 4), 4);
  EXPECT_EQ(choose_stages(1000, 100, 1199, 4), 0) << "one stage is no ring";
  EXPECT_EQ(choose_stages(2000, 100, 1000, 4), 0);
}

}  // namespace
