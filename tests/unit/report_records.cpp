// SPDX-License-Identifier: Apache-2.0
// Records: out and back, broken files, the table made of them, and that schema and code know the same keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "expect_error.hpp"
#include "model/json_value.hpp"
#include "model/read_file.hpp"
#include "report/record.hpp"
#include "report/record_fields.hpp"

namespace {

using namespace mla::report;
using mla::ErrorCode;

constexpr const char* kKey =
    "decode head h16 l512 r64 p128 v128 4q1s1k w256 sink4 b64 q:bf16 out:bf16 cache:bf16";

BenchRecord full_record() {
  BenchRecord r;
  r.key = kKey;
  int i = 1;
  for (const RecordField& field : record_fields()) {  // every field gets a value of its own
    if (const auto* text = std::get_if<std::string BenchRecord::*>(&field.member))
      r.** text = "text " + std::to_string(i);
    if (const auto* integer = std::get_if<std::int64_t BenchRecord::*>(&field.member)) r.** integer = i;
    if (const auto* real = std::get_if<std::optional<double> BenchRecord::*>(&field.member))
      r.** real = 1.0 / i;
    ++i;
  }
  r.flags = {"noisy", "busy"};
  r.samples_us = {1.5, 2.25, 0.1};
  return r;
}

TEST(Record, ComesBackAsItWentOut) {
  const BenchRecord record = full_record();
  const Environment environment{
      "env 1", {{"cpu", "x"}, {"threads", std::int64_t{2}}, {"gbps", 12.5}, {"container", false}}};
  const RunFile run = parse_run(to_json_line(environment) + to_json_line(record), "file");
  ASSERT_EQ(run.records.size(), 1U);
  EXPECT_EQ(run.records[0], record);
  ASSERT_EQ(run.environments.size(), 1U);
  EXPECT_EQ(run.environments[0], environment);
  EXPECT_TRUE(run.warnings.empty());
}

TEST(Record, AbsentAndNotFiniteValuesAreLeftOut) {
  BenchRecord record;
  record.key = kKey;
  record.backend = "b";
  record.status = "ok";
  record.time_us = std::numeric_limits<double>::infinity();
  record.samples_us = {std::numeric_limits<double>::quiet_NaN()};
  const std::string line = to_json_line(record);
  EXPECT_EQ(line.find("time_us"), std::string::npos);
  EXPECT_EQ(line.find("null"), std::string::npos);
  EXPECT_EQ(line.find("samples_us"), std::string::npos);
  EXPECT_FALSE(parse_run(line, "file").records[0].time_us.has_value());
}

TEST(Record, IdentityTellsApartWhatIsMeasuredNotHowItWent) {
  BenchRecord a = full_record();
  BenchRecord b = a;
  b.time_us = 7;
  b.command = "other";
  EXPECT_EQ(identity(a), identity(b));
  b.cache_state = "warm";
  EXPECT_NE(identity(a), identity(b));
  b = a;
  b.num_splits = 9;
  EXPECT_NE(identity(a), identity(b));
  b = a;
  b.mode = "invariant";
  EXPECT_NE(identity(a), identity(b));
}

TEST(RecordFile, ALastLineCutByACrashIsLeftOutWithAWarning) {
  const std::string line = to_json_line(full_record());
  const RunFile run = parse_run(line + line.substr(0, line.size() / 2), "run.jsonl");
  EXPECT_EQ(run.records.size(), 1U);
  ASSERT_EQ(run.warnings.size(), 1U);
  EXPECT_NE(run.warnings[0].find("run.jsonl line 2"), std::string::npos);
}

TEST(RecordFile, BrokenLinesElsewhereAreErrorsThatNameThem) {
  const std::string line = to_json_line(full_record());
  const auto parse = [](const std::string& text) { return [text] { return parse_run(text, "f"); }; };
  expect_error(parse(line + "{\n" + line), ErrorCode::kParse, {"f line 2"});
  expect_error(parse("[1]\n"), ErrorCode::kParse, {"f line 1", "schema_version"});
  expect_error(parse("{}\n"), ErrorCode::kParse, {"schema_version"});
  expect_error(parse(R"({"schema_version": 99, "type": "point"})"
                     "\n"),
               ErrorCode::kParse, {"99", "newer"});
  expect_error(parse(R"({"schema_version": 1, "type": "bird"})"
                     "\n"),
               ErrorCode::kParse, {"'bird'"});
  expect_error(parse(R"({"schema_version": 1, "type": "point"})"
                     "\n"),
               ErrorCode::kParse, {"'key'"});
  expect_error(
      parse(R"({"schema_version": 1, "type": "point", "key": "no shape", "backend": "b", "status": "ok"})"
            "\n"),
      ErrorCode::kParse, {"f line 1", "key"});
  const std::string head =
      std::string(R"({"schema_version": 1, "type": "point", "key": ")") + kKey + R"(", "status": "ok", )";
  expect_error(parse(head + R"("backend": 3})"
                            "\n"),
               ErrorCode::kParse, {"'backend'", "text"});
  expect_error(parse(head + R"("backend": "b", "time_us": "fast"})"
                            "\n"),
               ErrorCode::kParse, {"'time_us'", "number"});
  expect_error(parse(head + R"("backend": "b", "n": 1.5})"
                            "\n"),
               ErrorCode::kParse, {"'n'", "integer"});
  expect_error(parse(head + R"("backend": "b", "n": 99999999999999999999})"
                            "\n"),
               ErrorCode::kParse, {"'n'", "integer"});
  expect_error(parse(head + R"("backend": "b", "samples_us": [1, NaN]})"
                            "\n"),
               ErrorCode::kParse, {"samples_us"});
  expect_error(parse(head + R"("backend": "b", "flags": [1]})"
                            "\n"),
               ErrorCode::kParse, {"flags"});
  expect_error([] { return read_run("/nonexistent/run.jsonl"); }, ErrorCode::kIo, {"/nonexistent/run.jsonl"});
}

TEST(RecordFile, UnknownKeysOfTheSameSchemaAreIgnoredAndAnEmptyFileIsEmpty) {
  std::string line = to_json_line(full_record());
  line.insert(1, "\"added_later\": {\"a\": [1]}, ");
  EXPECT_EQ(parse_run(line, "f").records.at(0), full_record());
  EXPECT_TRUE(parse_run("", "f").records.empty());
  EXPECT_TRUE(parse_run("\n  \n", "f").records.empty());
}

TEST(RecordTable, ShowsTheAxesOfTheShape) {
  BenchRecord record = full_record();
  record.reason.clear();
  const std::vector<BenchRecord> records{record};
  const Table people = record_table(records, false);
  const auto cell = [&](const Table& table, std::string_view key) {
    const auto found = std::ranges::find(table.columns, key, &Column::key);
    EXPECT_NE(found, table.columns.end()) << key;
    return table.rows.at(0).at(static_cast<std::size_t>(found - table.columns.begin()));
  };
  EXPECT_EQ(cell(people, "batch"), Cell("4q1s1k"));
  EXPECT_EQ(cell(people, "kv"), Cell(std::int64_t{1024}));
  EXPECT_EQ(cell(people, "window"), Cell("256"));
  EXPECT_EQ(cell(people, "sink"), Cell(std::int64_t{4}));
  EXPECT_EQ(cell(people, "heads"), Cell(std::int64_t{16}));
  EXPECT_EQ(cell(people, "flags"), Cell("noisy busy"));
  EXPECT_EQ(std::ranges::find(people.columns, "reason", &Column::key), people.columns.end())
      << "no reason, no column";
  EXPECT_EQ(std::ranges::find(people.columns, "command", &Column::key), people.columns.end());
  const Table all = record_table(records, true);
  EXPECT_EQ(cell(all, "key"), Cell(kKey));
  EXPECT_EQ(cell(all, "command"), Cell(record.command));
}

std::set<std::string> keys_of(const mla::json::Value& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : *object.get_if<mla::json::Object>()) keys.insert(key);
  return keys;
}

TEST(RecordSchema, KnowsTheKeysThatAreWritten) {
  const std::string file = std::string(MLA_SOURCE_DIR) + "/configs/schema/record.schema.json";
  const mla::json::Value schema = mla::json::parse(mla::read_text_file(file), file);
  const mla::json::Value* point = schema.find("$defs")->find("point")->find("properties");
  const mla::json::Value written = mla::json::parse(to_json_line(full_record()), "line");
  EXPECT_EQ(keys_of(*point), keys_of(written));
}

TEST(RecordTable, SortsByAxesWithRivalsTogether) {
  std::vector<BenchRecord> records;
  for (const char* batch : {"1q1s2k", "1q1s512"}) {
    for (const char* backend : {"b", "a"}) {
      BenchRecord r = full_record();
      r.key = std::string("decode head h16 l512 r64 p128 v128 ") + batch +
              " causal b64 q:bf16 out:bf16 cache:bf16";
      r.backend = backend;
      records.push_back(r);
    }
  }
  sort_by_axes(records);
  std::string order;
  for (const BenchRecord& r : records)
    order += r.backend + (r.key.find("s512") != std::string::npos ? "512 " : "2k ");
  EXPECT_EQ(order, "a512 b512 a2k b2k ");
}

}  // namespace
