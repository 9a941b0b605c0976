// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "report/explain.hpp"
#include "report/formulas.hpp"

namespace {

using namespace mla::report;

BenchRecord row() {
  BenchRecord r;
  r.status = "ok";
  r.time_us = 400;
  r.floor_us = 100;
  r.of_floor = 0.25;
  r.bytes = 450e6;
  r.flops = r.least_flops = 13.5e9;
  r.bound = "memory";
  return r;
}

bool says(const BenchRecord& r, const char* part) {
  return explain(r).find(part) != std::string::npos;
}

TEST(Explain, NamesLeastWorkRoofAndDistance) {
  EXPECT_EQ(
      explain(row()),
      "at least 450 MB and 13.5 GFLOP (30 FLOP/B): bound by memory, 100 us at best; 400 us is 4 times that");
}

TEST(Explain, SaysWhatTheRecordKnowsOfTheRest) {
  BenchRecord r = row();
  r.flops = 27e9;
  EXPECT_TRUE(says(r, "computes 2 times the least")) << explain(r);
  r.slowed_by = "power";
  EXPECT_TRUE(says(r, "held down (power)"));
  r.event_us = 700;
  EXPECT_TRUE(says(r, "by itself a call takes 700 us"));
  r.time_us = 20;
  EXPECT_TRUE(says(r, "latency"));
}

TEST(Explain, AModelledRowHasNoRestToExplain) {
  BenchRecord r = row();
  r.timer = "modelled";
  r.time_us = 20;
  r.flops = 27e9;
  EXPECT_EQ(explain(r),
            "at least 450 MB and 27 GFLOP (60 FLOP/B): bound by memory, 100 us at best, by nominal peaks and "
            "without launch and latency");
}

TEST(Formulas, GiveTheNumbersOfTheRecordBack) {
  BenchRecord r = row();
  r.key = "decode head h16 l512 r64 p128 v128 2q1s1k causal b64 q:bf16 out:bf16 cache:bf16";
  r.backend = "x";
  r.model = "m";
  r.strategy = "absorbed";
  r.cache_state = "cold";
  r.timer = "graph";
  // 2048 rows of 1152 B; 2 tokens x 16 heads x (192 x 2 + 128 x 2 + 4); W_UK and W_UV: 16 x 512 x 256 x 2.
  r.bytes = 2048 * 1152 + 32 * 644 + 4194304;
  r.flops = r.least_flops = 2.0 * 16 * 2048 * 1088 + 2.0 * 16 * 2 * 512 * 256;
  r.ceiling_gbps = 1000;
  r.ceiling_gflops = 100000;
  r.floor_us = *r.bytes / 1e6 + 0.5;
  r.n = 9;
  const Table table = formulas_table(std::vector<BenchRecord>{r});
  ASSERT_EQ(table.rows.size(), 6U);
  const auto text = [&](std::size_t line, std::size_t column) {
    return std::get<std::string>(table.rows[line][column]);
  };
  EXPECT_EQ(text(0, 3),
            "2,048 rows x 1152 B + 2 tokens x 16 heads x (192 x 2 + 128 x 2 + 4) B + 16 heads x 512 x (128 + "
            "128) x 2 B");
  EXPECT_EQ(text(0, 4), "6,574,208 B");
  EXPECT_EQ(text(1, 3),
            "2 x 16 heads x 2,048 pairs x (2 x 512 + 64) + 2 x 16 heads x 2 tokens x 512 x (128 + 128)");
  EXPECT_EQ(text(1, 4), "79,691,776");
  EXPECT_EQ(text(2, 3),
            "max(6,574,208 B / 1000 GB/s = 6.574 us, 79,691,776 FLOP / 1e+05 GFLOP/s = 0.7969 us) + 0.5 us "
            "of launch");
  EXPECT_EQ(text(2, 4), "7.074 us");
  EXPECT_EQ(text(3, 4), "0.018");
  EXPECT_EQ(text(4, 4), "16.44");
  r.strategy = "expanded";
  EXPECT_EQ(std::get<std::string>(formulas_table(std::vector<BenchRecord>{r}).rows[1][3]),
            "2 x 16 heads x 2,048 pairs x (128 + 64 + 128) + 2 x 16 heads x 2,048 rows x 512 x (128 + 128)");
  r.status = "wrong";
  r.time_us.reset();
  EXPECT_EQ(formulas_table(std::vector<BenchRecord>{r}).rows.size(), 2U)
      << "what there is to do is known all the same";
}

TEST(Explain, ARowWithoutATimeGivesItsReason) {
  BenchRecord r = row();
  r.status = "unsupported";
  r.reason = "page size 16";
  EXPECT_EQ(explain(r), "page size 16");
  r = row();
  r.floor_us.reset();
  EXPECT_TRUE(says(r, "no ceilings"));
}

}  // namespace
