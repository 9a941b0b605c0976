// SPDX-License-Identifier: Apache-2.0
// Choosing a backend by measured times.
#include <gtest/gtest.h>

#include "expect_error.hpp"
#include "mla/error.hpp"
#include "mla/selector.hpp"

namespace {

using namespace mla;

constexpr const char* kTable = R"({
  "schema_version": 1, "device": "host", "made": "2026-01-01",
  "points": [
    {"shape": "decode head h16 l64 r16 p32 v32 1q1s256", "us": {"cpu-absorbed": 30, "cpu-expanded": 20.5}},
    {"shape": "decode head h16 l64 r16 p32 v32 1q1s64k", "us": {"cpu-absorbed": 1, "cpu-expanded": 2}},
    {"shape": "decode head h16 l64 r16 p32 v32 1q1s64k w128", "us": {"cpu-expanded": 1}}
  ]})";

TEST(Selector, FindsTheNearestMeasuredShape) {
  const Selector selector = parse_selector(kTable, "t");
  EXPECT_EQ(selector.device(), "host");
  ASSERT_EQ(selector.points().size(), 3U);
  // Between 256 and 65536 the middle in powers of two is 4096.
  const auto best = [&](const char* shape) {
    return selector.nearest(parse_shape(shape))->times_us.front().first;
  };
  EXPECT_EQ(best("decode head h16 l64 r16 p32 v32 1q1s2k"), "cpu-expanded");
  EXPECT_EQ(best("decode head h16 l64 r16 p32 v32 1q1s8k"), "cpu-absorbed");
  EXPECT_EQ(best("decode head h16 l64 r16 p32 v32 1q1s64k w64"), "cpu-expanded")
      << "a window is a region of its own";
  EXPECT_EQ(selector.nearest(parse_shape("decode latent h16 l64 r16 p32 v32 1q1s2k")), nullptr);
  EXPECT_EQ(selector.nearest(parse_shape("prefill head h16 l64 r16 p32 v32 q2k")), nullptr);
  EXPECT_EQ(selector.nearest(parse_shape("decode head h16 l64 r16 p32 v32 1q1s2k cache:fp8")), nullptr);
}

TEST(Selector, ChoosesTheFastestThatCanAndElseByRank) {
  const Selector selector = parse_selector(kTable, "t");
  const Device host = host_device();
  EXPECT_EQ(
      choose_backend(parse_shape("decode head h16 l64 r16 p32 v32 1q1s512"), host, selector).info().name,
      "cpu-expanded");
  EXPECT_EQ(
      choose_backend(parse_shape("decode head h16 l64 r16 p32 v32 1q1s32k"), host, selector).info().name,
      "cpu-absorbed");
  // Nothing measured in latent space: the order of preference decides.
  const AttentionShape latent = parse_shape("decode latent h16 l64 r16 p32 v32 1q1s512");
  EXPECT_EQ(&choose_backend(latent, host, selector), &choose_backend(latent, host, Selector()));
  // A name of another build is passed over.
  const Selector other("host", {{parse_shape("decode head h16 l64 r16 p32 v32 1q1s512"),
                                 {{"cpu-expanded", 2.0}, {"gone", 1.0}}}});
  EXPECT_EQ(choose_backend(parse_shape("decode head h16 l64 r16 p32 v32 1q1s512"), host, other).info().name,
            "cpu-expanded");
}

TEST(Selector, BelongsToARealDeviceAndToItsDescription) {
  Device real;
  real.name = "NVIDIA H200";
  real.origin = DeviceOrigin::kReal;
  EXPECT_FALSE(selector_for(real).points().empty());
  EXPECT_EQ(selector_for(load_device("h200")).device(), real.name);
  EXPECT_TRUE(selector_for(load_device("h100-sxm")).points().empty());
}

TEST(Selector, SaysWhatIsWrongWithATable) {
  const auto refuse = [](const char* text, std::initializer_list<std::string_view> words) {
    expect_error([&] { return parse_selector(text, "t.json").points().size(); }, ErrorCode::kParse, words);
  };
  refuse(R"({"device": "x", "points": []})", {"t.json", "schema_version"});
  refuse(R"({"schema_version": 2, "device": "x", "points": []})", {"2", "newer"});
  refuse(R"({"schema_version": 1, "points": []})", {"device"});
  refuse(R"({"schema_version": 1, "device": "x", "points": [{"shape": "decode q9z", "us": {}}]})", {"q9z"});
  refuse(R"({"schema_version": 1, "device": "x", "points": [{"shape": "decode 1q1s4", "us": {"a": -1}}]})",
         {"'a'", "-1"});
}

}  // namespace
