// SPDX-License-Identifier: Apache-2.0
#include "spec/values.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "expect_error.hpp"

namespace {

namespace spec = mla::spec;
using mla::ErrorCode;
using Values = std::vector<std::int64_t>;

template <class Parse>
void expect_refusal(Parse parse, std::string_view text, std::vector<std::string_view> parts) {
  parts.push_back("--flag");
  expect_error([&] { return parse(text, "--flag"); }, ErrorCode::kInvalidArgument, parts);
}

TEST(Values, CountLists) {
  EXPECT_EQ(spec::parse_count("4k", "n"), 4096);
  EXPECT_EQ(spec::parse_count_list("1,2,4", "n"), (Values{1, 2, 4}));
  EXPECT_EQ(spec::parse_count_list("7", "n"), Values{7});
  EXPECT_EQ(spec::parse_count_list("16..64:16", "n"), (Values{16, 32, 48, 64}));
  EXPECT_EQ(spec::parse_count_list("16..63:16", "n"), (Values{16, 32, 48}));  // the end only if it is hit
  EXPECT_EQ(spec::parse_count_list("3..6", "n"), (Values{3, 4, 5, 6}));
  EXPECT_EQ(spec::parse_count_list("5..5", "n"), Values{5});
  EXPECT_EQ(spec::parse_count_list("1k..8k:x2", "n"), (Values{1024, 2048, 4096, 8192}));
  EXPECT_EQ(spec::parse_count_list("1..100:x10", "n"), (Values{1, 10, 100}));
  EXPECT_EQ(spec::parse_count_list("1..99:x10,7,0..2", "n"), (Values{1, 10, 7, 0, 1, 2}));
  EXPECT_EQ(spec::parse_count_list("9223372036854775806..9223372036854775807", "n"),
            (Values{9223372036854775806, 9223372036854775807}));
  EXPECT_EQ(spec::parse_count_list("4000000000000000000..9223372036854775807:x2", "n"),
            (Values{4000000000000000000, 8000000000000000000}));
  EXPECT_EQ(spec::parse_count_list("1..100000", "n").size(), 100000U);
}

TEST(Values, CountListsRefused) {
  const auto expect = [](std::string_view text, std::vector<std::string_view> parts) {
    expect_refusal(spec::parse_count_list, text, std::move(parts));
  };
  expect("", {"at least one value"});
  expect("1,,2", {"'1,,2', which has an empty item"});
  expect("1,", {"empty item"});
  expect("1, 2", {"' 2', not a number"});
  expect("nan", {"'nan', not a number"});
  expect("8..4", {"'8..4', a range whose end lies below its start"});
  expect("1..4:0", {"step must be >= 1"});
  expect("1..4:x1", {"factor must be >= 2"});
  expect("1..4:x0", {"factor must be >= 2"});
  expect("0..4:x2", {"multiplies from 0"});
  expect("1..4:", {"the step of a range is empty"});
  expect("1..4:x", {"the factor of a range is empty"});
  expect("1..4:-1", {"the step of a range is '-1', negative"});
  expect("..4", {"the start of a range is empty"});
  expect("4..", {"the end of a range is empty"});
  expect("1..2..3", {"the end of a range is '2..3', not whole"});
  expect("1..100001", {"more than 100000 values"});
  expect("0..9223372036854775807", {"more than 100000 values"});
  expect("1..99999,7,7,7", {"more than 100000 values"});
}

TEST(Values, Sizes) {
  EXPECT_EQ(spec::parse_size("80GiB", "n"), 80LL << 30);
  EXPECT_EQ(spec::parse_size("141GB", "n"), 141'000'000'000);
  EXPECT_EQ(spec::parse_size("512MiB", "n"), 512LL << 20);
  EXPECT_EQ(spec::parse_size("1.5TB", "n"), 1'500'000'000'000);
  EXPECT_EQ(spec::parse_size("1024B", "n"), 1024);
  EXPECT_EQ(spec::parse_size("0B", "n"), 0);
  EXPECT_EQ(spec::parse_size("0.1kB", "n"), 100);
  EXPECT_EQ(spec::parse_size("2KB", "n"), 2000);
  EXPECT_EQ(spec::parse_size("2KiB", "n"), 2048);
  EXPECT_EQ(spec::parse_size("1PiB", "n"), 1LL << 50);
  EXPECT_EQ(spec::parse_size("1PB", "n"), 1'000'000'000'000'000);
}

TEST(Values, SizesRefused) {
  const auto expect = [](std::string_view text, std::vector<std::string_view> parts) {
    expect_refusal(spec::parse_size, text, std::move(parts));
  };
  expect("", {"'', not a size"});
  expect("80", {"'80' without a unit: GiB or GB?"});
  expect("GiB", {"'GiB', not a size"});
  expect("80G", {"unit 'G' is unknown"});
  expect("80gib", {"unit 'gib' is unknown"});
  expect("80 GiB", {"unit ' GiB' is unknown"});
  expect("-1GiB", {"a size is >= 0"});
  expect("nanGiB", {"not a size"});
  expect("infGB", {"not a size"});
  expect("1e3GB", {"unit 'e3GB' is unknown"});
  expect("0x10GB", {"unit 'x10GB' is unknown"});
  expect("9000000PiB", {"too large"});
  expect("8192PiB", {"too large"});  // 2^63 exactly
  expect(fmt::format("{:9>400}GB", ""), {"too large"});
}

TEST(Values, Words) {
  EXPECT_EQ(spec::parse_words("a,b,c", "n"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(spec::parse_words("a", "n"), std::vector<std::string>{"a"});
  expect_refusal(spec::parse_words, "", {"at least one value"});
  expect_refusal(spec::parse_words, "a,,b", {"'a,,b', which has an empty item"});
  expect_refusal(spec::parse_words, ",", {"empty item"});
}

}  // namespace
