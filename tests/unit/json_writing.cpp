// SPDX-License-Identifier: Apache-2.0
// The writer of JSON and the reader that knows where it is.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "expect_error.hpp"
#include "model/json_node.hpp"
#include "model/json_write.hpp"

namespace {

using mla::ErrorCode;
namespace json = mla::json;
using json::to_value;
using json::Value;

TEST(JsonWrite, OneLineAndIndented) {
  const Value value(json::Object{{"b", to_value(true)},
                                 {"a", to_value(std::vector<int>{1, -2})},
                                 {"none", Value()},
                                 {"empty", to_value(std::vector<int>{})},
                                 {"object", Value(json::Object{{"x", to_value(0.5)}})}});
  EXPECT_EQ(json::dump(value), R"({"b":true,"a":[1,-2],"none":null,"empty":[],"object":{"x":0.5}})");
  EXPECT_EQ(
      json::dump(value, 1),
      "{\n \"b\": true,\n \"a\": [\n  1,\n  -2\n ],\n \"none\": null,\n \"empty\": [],\n \"object\": {\n"
      "  \"x\": 0.5\n }\n}");
}

TEST(JsonWrite, NumbersReadBackAsTheSameDouble) {
  for (const double x : {0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, -1.7976931348623157e308, 1e16, 123456789012.0}) {
    const std::string text = json::dump(to_value(x));
    EXPECT_NE(text.find_first_of(".e"), std::string::npos) << text << " would read as a whole number";
    const Value read = json::parse(text, "it");
    EXPECT_EQ(read.get_if<json::Real>()->value, x) << text;
    EXPECT_EQ(std::signbit(read.get_if<json::Real>()->value), std::signbit(x)) << text;
  }
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(*json::parse(json::dump(to_value(most)), "it").get_if<std::int64_t>(), most);
  EXPECT_EQ(json::dump(to_value(std::nan(""))), "null");
  EXPECT_EQ(json::dump(to_value(-std::numeric_limits<double>::infinity())), "null");
}

TEST(JsonWrite, EveryByteOfAText) {
  std::string all;
  for (int byte = 0; byte < 128; ++byte) all += static_cast<char>(byte);
  all += "\xC3\xA9\xE2\x82\xAC";
  EXPECT_EQ(*json::parse(json::dump(to_value(all)), "it").get_if<std::string>(), all);
  EXPECT_EQ(json::dump(to_value("a\xFF"
                                "b")),
            "\"a\xEF\xBF\xBD"
            "b\"")
      << "no UTF-8: U+FFFD";
}

TEST(JsonWrite, PutReplacesOrAppends) {
  json::Object object{{"a", to_value(1)}};
  json::put(object, "b", to_value("x"));
  json::put(object, "a", to_value(2));
  EXPECT_EQ(json::dump(Value(object)), R"({"a":2,"b":"x"})");
}

TEST(JsonNode, SaysWhereAndWhat) {
  const Value value = json::parse(
      R"({"a": {"list": [1, "x"], "null": null, "nan": NaN, "big": 9223372036854775808, "yes": true}})",
      "f.json");
  const json::Node root(value, "f.json");
  const json::Node a = root.at("a");
  EXPECT_EQ(a.at("list").items()[0].count(0, 1), 1);
  EXPECT_EQ(a.at("list").items()[1].text(), "x");
  EXPECT_TRUE(a.at("yes").flag());
  EXPECT_FALSE(a.find("null").has_value());
  EXPECT_FALSE(a.find("absent").has_value());
  EXPECT_EQ(a.members().size(), 5U);
  const auto refused = [](const auto& call, std::string_view sentence) {
    expect_error(call, ErrorCode::kParse, {sentence});
  };
  refused([&] { return root.at("b"); }, "f.json: has no 'b'");
  refused([&] { return a.at("b"); }, "f.json: 'a' has no 'b'");
  refused([&] { return root.text(); }, "f.json: is an object, but must be a text");
  refused([&] { return a.at("list").items()[1].number(); },
          "f.json: 'a.list[1]' is 'x', but must be a number");
  refused([&] { return a.at("nan").number(); }, "f.json: 'a.nan' is NaN, but must be a number");
  refused([&] { return a.at("big").count(0, 5); },
          "'a.big' is 9223372036854775808, but must be a whole number");
  refused([&] { return a.at("list").items()[0].count(2, 3); }, "'a.list[0]' is 1, but must lie in 2..3");
  refused([&] { return a.at("list").flag(); }, "'a.list' is an array of 2, but must be true or false");
  refused([&] { return a.at("yes").items(); }, "'a.yes' is true, but must be an array");
  refused([&] { return a.at("list").find("x"); }, "'a.list' is an array of 2, but must be an object");
}

}  // namespace
