// SPDX-License-Identifier: Apache-2.0
// Sweeps: reading, who said what, expansion, and that file, schema and code know the same keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "expect_error.hpp"
#include "model/json_value.hpp"
#include "model/read_file.hpp"
#include "spec/sweep.hpp"

namespace {

using namespace mla::spec;
using mla::ErrorCode;

const std::vector<std::string> kBackends{"a", "b"};

/// Small widths, so that no model file is needed.
SweepSpec small_spec() {
  SweepSpec spec = default_spec();
  override_setting(spec, "dims", "h4/l64/r16/p32/v32", Level::kFile, "test");
  override_setting(spec, "order", "given", Level::kFile, "test");
  return spec;
}

SweepSpec with(SweepSpec spec, std::initializer_list<std::pair<std::string_view, std::string_view>> flags) {
  for (const auto& [key, text] : flags)
    override_setting(spec, key, text, Level::kFlag, "--" + std::string(key));
  return spec;
}

std::vector<std::string> texts(const Sweep& sweep) {
  std::vector<std::string> all;
  for (const SweepPoint& p : sweep.points) all.push_back(p.backend + " " + to_text(p.shape));
  return all;
}

TEST(SweepExpansion, CrossesAxesWithTheBackendInnermost) {
  const Sweep sweep = resolve(with(small_spec(), {{"kv", "64..128:x2"}, {"q_len", "1,2"}}), kBackends);
  ASSERT_EQ(sweep.points.size(), 8U);
  EXPECT_EQ(sweep.points[0].backend, "a");
  EXPECT_EQ(sweep.points[1].backend, "b");
  EXPECT_EQ(sweep.points[0].shape, sweep.points[1].shape);
  EXPECT_EQ(sweep.points[0].shape.batch, (std::vector<mla::Request>{{1, 64}}));
  EXPECT_EQ(sweep.points[2].shape.batch, (std::vector<mla::Request>{{1, 128}}));
  EXPECT_EQ(sweep.points[4].shape.batch, (std::vector<mla::Request>{{2, 64}}));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(sweep.points[i].position, i);
}

TEST(SweepExpansion, WhatMeansTheSameIsMeasuredOnce) {
  // A sink without a window means nothing, a window beside an index neither.
  const Sweep sweep = resolve(
      with(small_spec(),
           {{"backend", "a"}, {"kv", "256"}, {"window", "full,16"}, {"sink", "0,4"}, {"topk", "0,8"}}),
      kBackends);
  ASSERT_EQ(sweep.points.size(), 4U) << "full; window 16; window 16 + sink 4; topk 8";
  std::set<std::string> distinct;
  for (const std::string& text : texts(sweep)) distinct.insert(text);
  EXPECT_EQ(distinct.size(), 4U);
}

/// The row of a request's new token must not lie in a page of others.
TEST(SweepExpansion, AStepDoesNotWriteIntoASharedPrefix) {
  const auto step = [](std::string_view kv, std::string_view work) {
    return with(small_spec(),
                {{"backend", "a"}, {"requests", "3"}, {"kv", kv}, {"shared_prefix", "128"}, {"work", work}});
  };
  EXPECT_EQ(resolve(step("128", "attention"), kBackends).points.size(), 1U);
  EXPECT_EQ(resolve(step("129", "step"), kBackends).points.size(), 1U);
  expect_error([&] { return resolve(step("128", "step"), kBackends); }, ErrorCode::kInvalidArgument,
               {"batch[0] writes its new tokens from position 127 on, into a prefix of 128 tokens that 3 "
                "requests share; a step needs at least 129 keys there"});
}

TEST(SweepExpansion, SharedPrefixesAndHowTheyAreRead) {
  const auto points = [](std::initializer_list<std::pair<std::string_view, std::string_view>> changes) {
    return resolve(with(with(small_spec(), {{"backend", "a"}}), changes), kBackends).points;
  };
  const auto shared =
      points({{"requests", "3"}, {"kv", "256"}, {"shared_prefix", "0,128"}, {"prefix_reads", "once,each"}});
  ASSERT_EQ(shared.size(), 3U) << "without a prefix there is nothing to read once or for each";
  EXPECT_TRUE(shared[0].shape.shared.empty());
  EXPECT_EQ(shared[1].shape.shared, (std::vector<mla::SharedPrefix>{{128, 0, 3}}));
  EXPECT_EQ(shared[1].shape, shared[2].shape);
  EXPECT_EQ(shared[0].options.prefix_reads, mla::PrefixReads::kAuto);
  EXPECT_EQ(shared[1].options.prefix_reads, mla::PrefixReads::kOnce);
  EXPECT_EQ(shared[2].options.prefix_reads, mla::PrefixReads::kEach);
  EXPECT_NE(command_for(shared[1], {}).find(" --prefix-reads once"), std::string::npos);
  EXPECT_NE(command_for(shared[2], {}).find("prefix128 "), std::string::npos);
  EXPECT_NE(command_for(shared[2], {}).find(" --prefix-reads each"), std::string::npos);
  const auto invariant = points({{"kv", "256"}, {"invariant", "no,yes"}});
  ASSERT_EQ(invariant.size(), 2U);
  EXPECT_FALSE(invariant[0].options.batch_invariant);
  EXPECT_TRUE(invariant[1].options.batch_invariant);
  EXPECT_NE(command_for(invariant[1], {}).find(" --invariant yes"), std::string::npos);
  expect_error(
      [&] {
        return points({{"kv", "256"}, {"shared_prefix", "100"}});
      },
      ErrorCode::kInvalidArgument, {"shared[0].tokens is 100", "block size"});
  expect_error(
      [&] {
        return points({{"kv", "256"}, {"invariant", "maybe"}});
      },
      ErrorCode::kInvalidArgument, {"invariant", "'maybe'"});
}

TEST(SweepModes, ReadBackAsTheyAreWritten) {
  for (const bool invariant : {false, true}) {
    for (const auto reads : {mla::PrefixReads::kAuto, mla::PrefixReads::kOnce, mla::PrefixReads::kEach}) {
      const mla::PlanOptions options{.batch_invariant = invariant, .prefix_reads = reads};
      mla::PlanOptions back;
      read_mode(mode_text(options), back);
      EXPECT_EQ(back.batch_invariant, invariant);
      EXPECT_EQ(back.prefix_reads, reads);
    }
  }
  EXPECT_EQ(mode_text({}), "");
  EXPECT_EQ(mode_text({.batch_invariant = true, .prefix_reads = mla::PrefixReads::kEach}),
            "invariant prefix-each");
  expect_error(
      [] {
        mla::PlanOptions options;
        read_mode("invariant once", options);
        return 0;
      },
      ErrorCode::kParse, {"mode 'once' is unknown"});
}

TEST(SweepExpansion, RandomOrderIsThatOfTheSeed) {
  SweepSpec spec = with(small_spec(), {{"kv", "64..2k:64"}});
  const std::vector<std::string> given = texts(resolve(spec, kBackends));
  override_setting(spec, "order", "random", Level::kFlag, "--order");
  const std::vector<std::string> first = texts(resolve(spec, kBackends));
  EXPECT_EQ(first, texts(resolve(spec, kBackends)));
  EXPECT_NE(first, given);
  EXPECT_TRUE(std::ranges::is_permutation(first, given));
  override_setting(spec, "seed", "2", Level::kFlag, "--seed");
  EXPECT_NE(first, texts(resolve(spec, kBackends)));
}

TEST(SweepExpansion, ShapesAsRecordsNameThem) {
  const std::string key = "decode head h4 l64 r16 p32 v32 2q1s100 w16 sink4 b32 q:f32 out:f32 cache:f32";
  const SweepSpec spec =
      with(default_spec(), {{"shape", key}, {"backend", "b"}, {"splits", "3"}, {"caches", "warm"}});
  const Sweep sweep = resolve(spec, kBackends);
  ASSERT_EQ(sweep.points.size(), 1U);
  EXPECT_EQ(sweep.points[0].shape, mla::parse_shape(key));
  EXPECT_EQ(sweep.points[0].options.num_splits, 3);
  const std::string command = command_for(sweep.points[0], sweep.measure);
  EXPECT_EQ(command, "mla-bench run --shape '" + to_text(sweep.points[0].shape) +
                         "' --backend b --caches warm --seed 1 --splits 3");
}

TEST(SweepExpansion, AWholeStepIsInHeadSpaceAndCountedOnce) {
  SweepSpec spec = default_spec();
  override_setting(spec, "dims", "h16/l512/r64/p128/v128", Level::kFile, "test");
  const Sweep sweep = resolve(
      with(spec,
           {{"work", "attention,step"}, {"space", "latent,head"}, {"backend", "a"}, {"order", "given"}}),
      kBackends);
  ASSERT_EQ(sweep.points.size(), 3U) << "attention in both spaces, one step";
  const auto steps = std::ranges::count(sweep.points, true, &SweepPoint::step);
  EXPECT_EQ(steps, 1);
  for (const SweepPoint& point : sweep.points) {
    if (!point.step) continue;
    EXPECT_EQ(point.shape.space, mla::QuerySpace::kHead);
    EXPECT_NE(command_for(point, sweep.measure).find(" --work step"), std::string::npos);
  }
  expect_error(
      [&] {
        return resolve(with(spec, {{"work", "layer"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"'layer'", "--work"});
}

TEST(SweepExpansion, RivalsOfAShapeStandTogetherInRandomOrder) {
  SweepSpec spec = default_spec();
  override_setting(spec, "dims", "h16/l512/r64/p128/v128", Level::kFile, "test");
  const Sweep sweep =
      resolve(with(spec, {{"kv", "1..40"}, {"backend", "a,b"}, {"order", "random"}}), kBackends);
  ASSERT_EQ(sweep.points.size(), 80U);
  bool shuffled = false;
  int b_first = 0;
  for (std::size_t i = 0; i < 80; i += 2) {
    EXPECT_EQ(sweep.points[i].shape, sweep.points[i + 1].shape);
    EXPECT_NE(sweep.points[i].backend, sweep.points[i + 1].backend);
    shuffled = shuffled || sweep.points[i].position / 2 != i / 2;
    b_first += sweep.points[i].backend == "b" ? 1 : 0;
  }
  EXPECT_TRUE(shuffled);
  EXPECT_GT(b_first, 5);
  EXPECT_LT(b_first, 35);
}

TEST(SweepExpansion, TensorParallelismDividesHeads) {
  SweepSpec spec = default_spec();
  override_setting(spec, "dims", "h128/l512/r64/p128/v128", Level::kFile, "test");
  const Sweep sweep = resolve(with(spec, {{"tp", "1,8"}, {"backend", "a"}, {"order", "given"}}), kBackends);
  ASSERT_EQ(sweep.points.size(), 2U);
  EXPECT_EQ(sweep.points[0].shape.dims.num_heads, 128);
  EXPECT_EQ(sweep.points[1].shape.dims.num_heads, 16);
  expect_error(
      [&] {
        return resolve(with(spec, {{"tp", "3"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"--tp", "3", "128"});
}

TEST(SweepLevels, FlagsReplaceTheFilesWayOfSayingIt) {
  SweepSpec spec = small_spec();
  override_setting(spec, "batch", "7q1s64", Level::kFile, "file");
  EXPECT_EQ(resolve(spec, kBackends).points[0].shape.batch.size(), 7U);
  EXPECT_EQ(resolve(with(spec, {{"kv", "128"}}), kBackends).points[0].shape.batch,
            (std::vector<mla::Request>{{1, 128}}));
  override_setting(spec, "requests", "3", Level::kFile, "file");
  expect_error([&] { return resolve(spec, kBackends); }, ErrorCode::kInvalidArgument,
               {"'batch'", "'requests'", "file"});
  expect_error(
      [&] {
        return resolve(with(default_spec(), {{"model", "x"}, {"dims", "h1"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"'dims'", "'model'", "twice"});
  expect_error(
      [&] {
        return resolve(with(default_spec(), {{"shape", "h1"}, {"window", "3"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"'shape'", "'window'", "twice"});
}

TEST(SweepMeasure, ReadsSharesAndDurations) {
  const Measure m = resolve(with(small_spec(), {{"noise", "0.5%"},
                                                {"min_time", "250us"},
                                                {"max_time", "1min"},
                                                {"min_samples", "3"},
                                                {"max_samples", "1k"},
                                                {"repetitions", "2"},
                                                {"seed", "9"},
                                                {"verify", "full"},
                                                {"order", "random"}}),
                            kBackends)
                        .measure;
  EXPECT_DOUBLE_EQ(m.rule.noise, 0.005);
  EXPECT_DOUBLE_EQ(m.rule.min_time, 250e-6);
  EXPECT_DOUBLE_EQ(m.rule.max_time, 60);
  EXPECT_EQ(m.rule.min_samples, 3);
  EXPECT_EQ(m.rule.max_samples, 1024);
  EXPECT_EQ(m.repetitions, 2);
  EXPECT_EQ(m.seed, 9U);
  EXPECT_EQ(m.verify, VerifyMode::kFull);
  EXPECT_TRUE(m.random_order);
}

struct BadFlag {
  const char* key;
  const char* text;
  const char* says;
};

TEST(SweepErrors, NameTheKeyItsOriginAndTheValue) {
  const BadFlag bad[] = {{"noise", "1", "'1'"},
                         {"noise", "0%", "'0%'"},
                         {"noise", "nan%", "'nan%'"},
                         {"noise", "-1%", "'-1%'"},
                         {"noise", "1e-3%", "'1e-3%'"},
                         {"max_time", "5", "'5'"},
                         {"max_time", "5h", "'5h'"},
                         {"max_time", "inf s", "inf"},
                         {"max_time", "9999min", "9999min"},
                         {"order", "sorted", "sorted"},
                         {"verify", "maybe", "maybe"},
                         {"min_samples", "0", "0"},
                         {"min_samples", "300", "300"},
                         {"seed", "-1", "-1"},
                         {"heads", "x", "'x'"},
                         {"heads", "5000000000", "5000000000"},
                         {"window", "wide", "'wide'"},
                         {"caches", "tepid", "'tepid'"},
                         {"space", "outer", "'outer'"},
                         {"phase", "both", "'both'"},
                         {"dtype", "int3", "int3"},
                         {"cache", "fp2", "fp2"},
                         {"dims", "h4/z9", "'z9'"},
                         {"dims", "h4/h4", "'h4'"},
                         {"dims", "l", "'l'"},
                         {"requests", "100000", "100000"},
                         {"kv", "1..1000000", "1000000"},
                         {"splits", "1,,2", "1,,2"},
                         {"repetitions", "0", "0"}};
  for (const BadFlag& b : bad) {
    SCOPED_TRACE(b.key + std::string(" ") + b.text);
    expect_error(
        [&] {
          return resolve(with(small_spec(), {{b.key, b.text}}), kBackends);
        },
        ErrorCode::kInvalidArgument, {b.says});
  }
  expect_error(
      [&] {
        return resolve(with(small_spec(), {{"heads", "x"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"'heads'", "--heads"});
  expect_error(
      [&] {
        return resolve(with(small_spec(), {{"kv", ""}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"'kv'", "empty"});
  expect_error(
      [&] {
        return resolve(with(small_spec(), {{"wndow", "3"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"'wndow'"});
  expect_error(
      [&] {
        return resolve(with(small_spec(), {{"kv", "1..400"}, {"heads", "1..400"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"320000", "100000"});
  expect_error(
      [&] {
        return resolve(with(small_spec(), {{"kv", "2"}, {"q_len", "5"}}), kBackends);
      },
      ErrorCode::kInvalidArgument, {"2", "5"});
  expect_error(
      [&] {
        return resolve(with(small_spec(), {{"batch", "32x"}}), kBackends);
      },
      ErrorCode::kParse, {"'batch'", "--batch", "32x"});
  expect_error([&] { return resolve(small_spec(), {}); }, ErrorCode::kInvalidArgument, {"no backend"});
}

TEST(SweepExpansion, ABackendCanBeTakenOutOfAll) {
  const auto backends_of = [](const char* text) {
    std::vector<std::string> names;
    for (const SweepPoint& point : resolve(with(small_spec(), {{"backend", text}}), kBackends).points)
      names.push_back(point.backend);
    return names;
  };
  EXPECT_EQ(backends_of("all"), kBackends);
  EXPECT_EQ(backends_of("all,-a"), std::vector<std::string>{"b"});
  EXPECT_EQ(backends_of("all,c,-b"), (std::vector<std::string>{"a", "c"}));
  expect_error([&] { return backends_of("all,-d"); }, ErrorCode::kInvalidArgument, {"'-d'", "backend"});
  expect_error([&] { return backends_of("all,-a,-b"); }, ErrorCode::kInvalidArgument, {"no backend"});
}

TEST(SweepFile, ReadsNumbersTextsListsAndComments) {
  const SweepSpec spec = parse_spec(R"({
    // what for
    "name": "n", "question": "q?", "$schema": "x",
    "axes": {"heads": 16, "window": ["full", 256, "1k..2k:x2"] /* three ways */, "backend": "a"},
    "measure": {"noise": "2%", "repetitions": 3}
  })",
                                    "f.json");
  EXPECT_EQ(spec.name, "n");
  EXPECT_EQ(spec.question, "q?");
  EXPECT_EQ(spec.settings.at("heads").text, "16");
  EXPECT_EQ(spec.settings.at("window").text, "full,256,1k..2k:x2");
  EXPECT_EQ(spec.settings.at("window").origin, "f.json");
  EXPECT_EQ(spec.settings.at("noise").level, Level::kFile);
  EXPECT_EQ(spec.settings.at("cache").origin, "default");
}

TEST(SweepFile, SaysWhatIsWrongWithIt) {
  const auto parse = [](const char* text) { return [text] { return parse_spec(text, "f.json"); }; };
  expect_error(parse("{"), ErrorCode::kParse, {"f.json"});
  expect_error(parse("[]"), ErrorCode::kParse, {"f.json"});
  expect_error(parse(R"({"axis": {}})"), ErrorCode::kParse, {"'axis'"});
  expect_error(parse(R"({"axes": {"windw": 3}})"), ErrorCode::kParse, {"'windw'", "axes"});
  expect_error(parse(R"({"axes": {"noise": "3%"}})"), ErrorCode::kParse, {"'noise'", "axes"});
  expect_error(parse(R"({"measure": {"heads": 3}})"), ErrorCode::kParse, {"'heads'", "measure"});
  expect_error(parse(R"({"axes": 3})"), ErrorCode::kParse, {"'axes'"});
  expect_error(parse(R"({"axes": {"heads": null}})"), ErrorCode::kParse, {"'heads'"});
  expect_error(parse(R"({"axes": {"heads": 1.5}})"), ErrorCode::kParse, {"'heads'", "1.5"});
  expect_error(parse(R"({"axes": {"heads": -1}})"), ErrorCode::kParse, {"'heads'", "-1"});
  expect_error(parse(R"({"axes": {"heads": [[1]]}})"), ErrorCode::kParse, {"'heads'"});
  expect_error(parse(R"({"axes": {"heads": []}})"), ErrorCode::kInvalidArgument, {"'heads'", "empty"});
  expect_error(parse(R"({"axes": {"heads": true}})"), ErrorCode::kParse, {"'heads'"});
  expect_error(parse(R"({"axes": {"heads": 1, "heads": 2}})"), ErrorCode::kParse, {"heads"});
  expect_error(parse(R"({"name": 3})"), ErrorCode::kParse, {"'name'"});
  try {
    static_cast<void>(parse_spec(R"({"axes": {"windw": 3}})", "f.json"));
    FAIL();
  } catch (const mla::Error& error) {
    EXPECT_NE(error.hint().find("window"), std::string::npos) << error.hint();
  }
}

TEST(SweepFile, PrintedSpecReadsBackTheSame) {
  SweepSpec spec = with(small_spec(), {{"window", "full,16"}, {"kv", "64"}, {"noise", "3%"}});
  spec.name = "a \"name\"";
  const std::string printed = print_spec(spec);
  EXPECT_NE(printed.find("\"window\": \"full,16\",  // --window"), std::string::npos) << printed;
  EXPECT_EQ(printed.find("\"batch\""), std::string::npos) << "what does not count is not printed";
  EXPECT_EQ(printed.find("\"model\""), std::string::npos);
  const SweepSpec again = parse_spec(printed, "printed");
  EXPECT_EQ(again.name, spec.name);
  EXPECT_EQ(texts(resolve(again, kBackends)), texts(resolve(spec, kBackends)));
}

std::set<std::string> keys_of(const mla::json::Value& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : *object.get_if<mla::json::Object>()) keys.insert(key);
  return keys;
}

TEST(SweepSchema, KnowsTheKeysOfTheCode) {
  const std::string file = std::string(MLA_SOURCE_DIR) + "/configs/schema/sweep.schema.json";
  const mla::json::Value schema = mla::json::parse(mla::read_text_file(file), file);
  std::set<std::string> axes;
  std::set<std::string> measure;
  for (const SweepKey& key : sweep_keys()) (key.section == Section::kAxes ? axes : measure).emplace(key.name);
  const mla::json::Value* properties = schema.find("properties");
  EXPECT_EQ(keys_of(*properties->find("axes")->find("properties")), axes);
  EXPECT_EQ(keys_of(*properties->find("measure")->find("properties")), measure);
}

TEST(SweepConfigs, EverySweepOfTheTreeExpandsAndAsksAQuestion) {
  const std::vector<SpecEntry> entries = list_specs();
  ASSERT_FALSE(entries.empty());
  for (const SpecEntry& entry : entries) {
    SCOPED_TRACE(entry.path.string());
    EXPECT_TRUE(entry.question.ends_with('?')) << entry.question;
    const SweepSpec spec = load_spec(entry.name);
    EXPECT_EQ(spec.name, entry.name) << "the name of a sweep is that of its file";
    EXPECT_FALSE(resolve(spec, kBackends).points.empty());
  }
  expect_error([] { return load_spec("smok"); }, ErrorCode::kInvalidArgument, {"'smok'"});
  expect_error([] { return load_spec("/"); }, ErrorCode::kIo, {"/"});
}

}  // namespace
