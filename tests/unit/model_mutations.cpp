// SPDX-License-Identifier: Apache-2.0
// Every value of every model we have, replaced by what does not belong there: read or refused, never anything
// else.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "mla/error.hpp"
#include "mla/model.hpp"
#include "model/json_value.hpp"

namespace {

namespace json = mla::json;

constexpr const char* kLiterals[] = {"null", "-1",   "0",      "1",    "3",     "4096", "9223372036854775807",
                                     "1e18", "0.5",  "NaN",    "true", "\"x\"", "[]",   "{}",
                                     "[0]",  "[[]]", "[\"x\"]"};

/// Of a long list only some items are replaced: the ends, where rules begin and end, and one in between.
bool is_target(std::size_t item, std::size_t of) {
  return of <= 4 || item < 2 || item == of / 2 || item == of - 1;
}

// Writes `value`, with `literal` in place of the value numbered `target` (in the order they are written).
class Writer {
 public:
  Writer(std::size_t target, const char* literal) : target_(target), literal_(literal) {}

  std::string write(const json::Value& value, bool counts = true) {
    if (counts && count_++ == target_) return literal_;
    if (const json::Object* object = value.get_if<json::Object>()) {
      std::string out = "{";
      for (const auto& [key, member] : *object)
        out += (out.size() > 1 ? "," : "") + json::quote(key) + ":" + write(member, counts);
      return out + "}";
    }
    if (const json::Array* array = value.get_if<json::Array>()) {
      std::string out = "[";
      for (std::size_t i = 0; i < array->size(); ++i) {
        out += (out.size() > 1 ? "," : "") + write((*array)[i], counts && is_target(i, array->size()));
      }
      return out + "]";
    }
    if (const std::string* word = value.get_if<std::string>()) return json::quote(*word);
    return json::describe(value);
  }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  std::size_t target_;
  const char* literal_;
  std::size_t count_ = 0;
};

TEST(ModelMutations, AnyValueAnywhere) {
  std::size_t accepted = 0, refused = 0;
  for (const mla::ModelConfig& model : mla::list_models()) {
    std::ifstream in(model.path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const json::Value root = json::parse(text, model.path, {.comments = true});
    const json::Value& config = *root.find("config");
    Writer plain(static_cast<std::size_t>(-1), "");
    ASSERT_EQ(mla::parse_model(plain.write(config), "x").layers.size(), model.layers.size()) << model.name;
    // A prime stride over (value, literal) pairs: each value meets some literals, each literal most values.
    const std::size_t pairs = plain.count() * std::size(kLiterals);
    for (std::size_t pair = 0; pair < pairs; pair += 7) {
      Writer writer(pair / std::size(kLiterals), kLiterals[pair % std::size(kLiterals)]);
      const std::string mutated = writer.write(config);
      try {
        const mla::ModelConfig read = mla::parse_model(mutated, "x");
        ++accepted;
        ASSERT_EQ(read.ffn.size(), static_cast<std::size_t>(read.num_layers + read.num_mtp_layers))
            << mutated;
        // A change elsewhere never turns a latent row into KV heads.
        ASSERT_EQ(read.mla.has_value(), model.mla.has_value()) << mutated;
      } catch (const mla::Error& error) {
        ++refused;
        ASSERT_NE(error.code(), mla::ErrorCode::kInternal) << error.what() << "\n" << mutated;
        ASSERT_EQ(std::string_view(error.what()).substr(0, 3), "x: ") << error.what();
      }
    }
  }
  // Both happen, and often: a test that only refuses (or only accepts) tests little.
  EXPECT_GT(accepted, 500U);
  EXPECT_GT(refused, 1000U);
  RecordProperty("accepted", static_cast<int>(accepted));
  RecordProperty("refused", static_cast<int>(refused));
}

}  // namespace
