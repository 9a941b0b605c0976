// SPDX-License-Identifier: Apache-2.0
// Malformed text: a sentence with the file, the field and the value, never a crash and never a value made up.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "expect_error.hpp"
#include "json_text.hpp"
#include "mla/model.hpp"
#include "model/json_value.hpp"

namespace {

using mla::ErrorCode;

void refused_text(const std::string& text, ErrorCode code, const std::vector<std::string_view>& parts) {
  expect_error([&] { return mla::parse_model(text, "some.json"); }, code, parts);
}

TEST(ModelInput, WrongTypes) {
  struct Case {
    const char* literal;
    const char* shown;
  };
  for (const Case& wrong : {Case{"4.0", "4.0"},
                            {"\"4\"", "'4'"},
                            {"true", "true"},
                            {"-4", "-4"},
                            {"0", "0"},
                            {"1e3", "1e3"},
                            {"[4]", "an array of 1"},
                            {"{}", "an object"},
                            {"NaN", "NaN"},
                            {"Infinity", "Infinity"},
                            {"99999999999999999999999", "99999999999999999999999"},
                            {"9223372036854775807", "922337"}}) {
    refused_text(mla_config().with("num_hidden_layers", wrong.literal).text(), ErrorCode::kParse,
                 {"some.json: num_hidden_layers must be a whole number from 1 to 4096", wrong.shown});
    refused_text(mla_config().with("kv_lora_rank", wrong.literal).text(), ErrorCode::kParse,
                 {"kv_lora_rank", wrong.shown});
  }
  refused_text(mla_config().with("tie_word_embeddings", "1").text(), ErrorCode::kParse,
               {"tie_word_embeddings", "true or false"});
  refused_text(mla_config().with("model_type", "3").text(), ErrorCode::kParse,
               {"model_type", "a text in quotes"});
  refused_text(mla_config().with("architectures", "\"x\"").text(), ErrorCode::kParse,
               {"architectures", "a list of texts"});
  refused_text(mla_config().with("rope_theta", "-Infinity").text(), ErrorCode::kParse,
               {"rope_theta", "-Infinity"});
  refused_text(mla_config().with("rms_norm_eps", "-1").text(), ErrorCode::kParse, {"rms_norm_eps", "-1"});
}

TEST(ModelInput, FieldsNobodyReadsMayBeAnything) {
  // Python writes Infinity, and Nemotron-H's own file has it.
  const std::string text =
      mla_config().with("time_step_limit", "[0.0, Infinity, NaN, -Infinity]").with("what", "\"NaN\"").text();
  EXPECT_EQ(mla::parse_model(text, "x").num_layers, 4);
}

TEST(ModelInput, DuplicateKeys) {
  refused_text(R"({"hidden_size": 1, "hidden_size": 2})", ErrorCode::kParse,
               {"'hidden_size' is given twice"});
  refused_text(R"({"rope_scaling": {"factor": 1, "factor": 1}})", ErrorCode::kParse,
               {"'factor' is given twice in 'rope_scaling'"});
}

TEST(ModelInput, BrokenText) {
  const std::string whole = mla_config().text();
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_THROW(static_cast<void>(mla::parse_model(whole.substr(0, cut), "x")), mla::Error) << cut;
  }
  refused_text("", ErrorCode::kParse, {"not valid JSON at line 1"});
  refused_text("", ErrorCode::kParse, {"it is empty"});
  for (const char* cut : {"{\"a\": 1, ", "{\"a\": \"b", "{\"a\"", "{"})
    refused_text(cut, ErrorCode::kParse, {"it ends here, as if it had been cut off"});
  refused_text("{\"a\": 1 \"b\": 2}", ErrorCode::kParse, {"unexpected string literal; expected '}'"});
  refused_text("[1, 2]", ErrorCode::kParse, {"must be an object", "an array of 2"});
  refused_text("{\"a\": 1} trailing", ErrorCode::kParse, {"line 1"});
  refused_text("{\n  \"a\": tru\n}", ErrorCode::kParse, {"line 2", "in 'a'"});
  refused_text("{\"a\": 1e999}", ErrorCode::kParse, {"in 'a'"});
  refused_text("{\"a\": \"\xFF\xFE\"}", ErrorCode::kParse, {"UTF-8"});
  refused_text(std::string("{\"a\0b\": 1}", 10), ErrorCode::kParse, {"line 1"});
  refused_text(std::string(100'000, '['), ErrorCode::kParse, {"nested deeper than 64 levels"});
  refused_text("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", ErrorCode::kParse,
               {"64 levels in 'a'"});
  refused_text("\"" + std::string(100'000, 'x'), ErrorCode::kParse, {"not valid JSON"});
  // A message is a sentence even when the offending token is not.
  try {
    static_cast<void>(mla::parse_model("{" + std::string(1'000'000, 'x') + "}", "x"));
    FAIL();
  } catch (const mla::Error& e) {
    EXPECT_LT(std::string(e.what()).size(), 400U);
  }
}

TEST(ModelInput, Sizes) {
  refused_text(std::string((64U << 20) + 1, ' '), ErrorCode::kParse, {"larger than 64 MiB"});
  std::string many = "{\"a\": [0";
  for (int i = 0; i < 2'100'000; ++i) many += ",0";
  refused_text(many + "]}", ErrorCode::kParse, {"more than 2000000 values in 'a'"});
}

TEST(ModelInput, Comments) {
  // In a config.json no engine would read them.
  refused_text("{ // width\n" + mla_config().text().substr(1), ErrorCode::kParse, {"not valid JSON"});
  const std::string wrapped =
      "{ // it isn't \"NaN\"\n \"name\": \"x\", \"source\": \"y\", \"checked\": \"2026-01-01\", /* the file "
      "*/ \"config\": " +
      mla_config().text() + "}";
  const mla::ModelConfig model = mla::parse_model(wrapped, "x.json");
  EXPECT_EQ(model.name, "x");
  EXPECT_EQ(model.num_layers, 4);
  EXPECT_EQ(model.notes.front().from.rfind("config.", 0), 0U);
}

TEST(ModelInput, Wrapper) {
  const JsonText wrapper = {
      {"name", "\"x\""}, {"source", "\"y\""}, {"checked", "\"2026-01-01\""}, {"config", mla_config().text()}};
  EXPECT_EQ(mla::parse_model(wrapper.text(), "x").title, "x");
  EXPECT_EQ(mla::parse_model(wrapper.with("aliases", R"(["a", "b"])").text(), "x").aliases.size(), 2U);
  refused_text(wrapper.with("titel", "\"X\"").text(), ErrorCode::kParse,
               {"'titel' is not a key of this file"});
  try {
    static_cast<void>(mla::parse_model(wrapper.with("titel", "\"X\"").text(), "x"));
  } catch (const mla::Error& e) {
    EXPECT_EQ(e.hint(), "did you mean 'title'?");
  }
  refused_text(wrapper.without("source").text(), ErrorCode::kInvalidArgument, {"source is missing"});
  refused_text(wrapper.with("name", "\"\"").text(), ErrorCode::kInvalidArgument, {"name"});
  refused_text(wrapper.with("config", "{}").text(), ErrorCode::kInvalidArgument,
               {"config.num_hidden_layers is missing"});
  // Hugging Face files have any keys.
  EXPECT_EQ(mla::parse_model(mla_config().with("titel", "1").text(), "x").num_layers, 4);
}

TEST(ModelInput, HugeWidthsMakeNoHugeAllocations) {
  refused_text(mla_config().with("num_hidden_layers", "4097").text(), ErrorCode::kParse, {"4096"});
  refused_text(mla_config().with("num_nextn_predict_layers", "1000").text(), ErrorCode::kParse,
               {"from 0 to 64"});
  refused_text(mla_config().with("hidden_size", "1048577").text(), ErrorCode::kParse, {"1048576"});
  refused_text(mla_config().with("n_shared_experts", "1000000").text(), ErrorCode::kParse,
               {"n_shared_experts"});
}

TEST(JsonValue, Describe) {
  const mla::json::Value root =
      mla::json::parse(R"({"a": null, "b": [1, 2.5, "x"], "c": -7, "d": false})", "x");
  EXPECT_EQ(mla::json::describe(root), "an object");
  EXPECT_EQ(mla::json::describe(*root.find("a")), "null");
  EXPECT_EQ(mla::json::describe(*root.find("b")), "an array of 3");
  EXPECT_EQ(mla::json::describe((*root.find("b")->get_if<mla::json::Array>())[1]), "2.5");
  EXPECT_EQ(mla::json::describe(*root.find("c")), "-7");
  EXPECT_EQ(root.find("absent"), nullptr);
  EXPECT_EQ(root.find("c")->find("absent"), nullptr);
  const mla::json::Value big = mla::json::parse("18446744073709551615", "x");
  EXPECT_EQ(mla::json::describe(big), "18446744073709551615");
  EXPECT_EQ(mla::json::quote("a\"\n"), R"("a\"\n")");
  expect_error([] { return mla::json::quote("\xFF"); }, ErrorCode::kInvalidArgument, {"UTF-8"});
}

}  // namespace
