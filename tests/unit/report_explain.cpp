// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "report/explain.hpp"

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
