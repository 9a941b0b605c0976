// SPDX-License-Identifier: Apache-2.0
// Several records of a point as one row.
#include <gtest/gtest.h>

#include "report/repetitions.hpp"

namespace {

using namespace mla::report;

BenchRecord record(const std::string& backend, std::int64_t repetition, double time, double low,
                   double high) {
  BenchRecord r;
  r.key = "decode latent h16 l512 r64 p128 v128 q1s1k causal b64 q:bf16 out:bf16 cache:bf16";
  r.backend = backend;
  r.status = "ok";
  r.verified = repetition == 0 ? "sample" : "earlier";
  r.repetition = repetition;
  r.time_us = time;
  r.time_low_us = low;
  r.time_high_us = high;
  r.time_min_us = low - 1;
  r.n = 2;
  r.samples_us = {low, high};
  return r;
}

TEST(Repetitions, AreOneRowWithTheHullOfTheirIntervals) {
  std::vector<BenchRecord> records{record("a", 1, 30, 29, 31), record("b", 0, 7, 6, 8),
                                   record("a", 0, 10, 9, 11), record("a", 2, 20, 19, 22)};
  records[3].flags = {"noisy"};
  const std::vector<BenchRecord> merged = merge_repetitions(records);
  ASSERT_EQ(merged.size(), 2U);
  const BenchRecord& a = merged[0];
  EXPECT_EQ(a.backend, "a");
  EXPECT_EQ(a.repetitions, 3);
  EXPECT_EQ(a.repetition, 0);
  EXPECT_DOUBLE_EQ(*a.time_us, 20);
  EXPECT_DOUBLE_EQ(*a.time_low_us, 9);
  EXPECT_DOUBLE_EQ(*a.time_high_us, 31);
  EXPECT_DOUBLE_EQ(*a.time_min_us, 8);
  EXPECT_DOUBLE_EQ(*a.noise, 22.0 / 40);
  EXPECT_EQ(a.n, 6);
  EXPECT_EQ(a.samples_us.size(), 6U);
  EXPECT_EQ(a.verified, "sample");
  EXPECT_EQ(a.flags, std::vector<std::string>{"noisy"});
  EXPECT_EQ(merged[1], records[1]) << "one alone stays as it is";
  const Table table = record_table(merged, false);
  EXPECT_EQ(table.columns[table.columns.size() - 2].title, "runs");
  EXPECT_EQ(table.rows[0][table.columns.size() - 2], Cell{std::int64_t{3}});
}

TEST(Repetitions, OneThatFailedStandsForThePoint) {
  std::vector<BenchRecord> records{record("a", 0, 10, 9, 11), record("a", 1, 10, 9, 11)};
  records[1].status = "wrong";
  records[1].reason = "row 3";
  const std::vector<BenchRecord> merged = merge_repetitions(records);
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].status, "wrong");
  EXPECT_EQ(merged[0].reason, "row 3");
}

}  // namespace
