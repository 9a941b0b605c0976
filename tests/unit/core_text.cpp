// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>

#include "core/count.hpp"
#include "expect_error.hpp"
#include "mla/backend.hpp"
#include "mla/dims.hpp"
#include "mla/random.hpp"
#include "mla/version.hpp"

namespace {

namespace text = mla::text;
using mla::ErrorCode;
using Words = std::vector<std::string>;

TEST(Text, NearestAllowsAThirdOfTheLetters) {
  const Words names = {"cpu-absorbed", "cpu-expanded", "cuda-latent"};
  EXPECT_EQ(text::nearest("cpu-absrobed", names), "cpu-absorbed");
  EXPECT_EQ(text::nearest("CUDA-LATENT", names), "cuda-latent");
  EXPECT_EQ(text::nearest("cuda_latnt", names), "cuda-latent");
  EXPECT_EQ(text::nearest("rocm", names), "");
  EXPECT_EQ(text::nearest("", names), "");
  EXPECT_EQ(text::nearest("ba", Words{"cd", "ab"}), "ab");  // a swap is one edit
  EXPECT_EQ(text::nearest("ab", Words{"cd", "xb"}), "xb");  // short words: one edit
  EXPECT_EQ(text::nearest("a", Words{}), "");
  EXPECT_EQ(text::nearest(std::string(100000, 'a'), Words{std::string(100000, 'a')}),
            "");  // not worth the time
}

TEST(Text, Suggestion) {
  EXPECT_EQ(text::suggestion("bf61", Words{"f32", "bf16"}), "did you mean 'bf16'?");
  EXPECT_EQ(text::suggestion("zzz", Words{"f32", "bf16"}), "one of: f32, bf16");
  // What the word begins comes before what one digit changes, and equals are all named.
  const Words models{"deepseek-v2", "deepseek-v3", "deepseek-v4-flash", "deepseek-v4-pro"};
  EXPECT_EQ(text::suggestion("deepseek-v4", models),
            "did you mean 'deepseek-v4-flash' or 'deepseek-v4-pro'?");
  EXPECT_EQ(text::suggestion("DeepSeek-V4", models),
            "did you mean 'deepseek-v4-flash' or 'deepseek-v4-pro'?");
  EXPECT_EQ(text::suggestion("deepseek-v5", models), "did you mean 'deepseek-v2' or 'deepseek-v3'?");
  EXPECT_EQ(text::suggestion("deepseek-v3x", models), "did you mean 'deepseek-v3'?");
  EXPECT_EQ(text::nearest("deepseek-v4", models), "deepseek-v4-flash");
  EXPECT_EQ(text::suggestion("abc", Words{"abc1", "abc2", "abc3", "abc4", "abc5"}),
            "did you mean 'abc1', 'abc2', 'abc3' or 'abc4'?");
  EXPECT_EQ(text::suggestion("zzz", Words{}), "");
}

TEST(Text, JoinSplitLower) {
  EXPECT_EQ(text::join_or(Words{}), "");
  EXPECT_EQ(text::join_or(Words{"a"}), "a");
  EXPECT_EQ(text::join_or(Words{"a", "b"}), "a or b");
  EXPECT_EQ(text::join_or(Words{"a", "b", "c"}), "a, b or c");
  EXPECT_EQ(text::split("a,,b,", ','), (Words{"a", "", "b", ""}));
  EXPECT_EQ(text::split("", ','), Words{""});
  EXPECT_EQ(text::to_lower("MiXed-09_\xC3\x84"), "mixed-09_\xC3\x84");  // bytes above ASCII are left alone
}

TEST(Text, QuotedCannotFloodOrRepaintATerminal) {
  EXPECT_EQ(text::quoted("plain"), "'plain'");
  EXPECT_EQ(text::quoted("a\x1b[31m\n\x7f"), "'a\\x1b[31m\\x0a\\x7f'");
  EXPECT_EQ(text::quoted("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "'\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80'");
  // Not UTF-8: a lone byte, a cut sequence, an overlong slash, a surrogate, beyond the last code point; and a
  // C1 control.
  EXPECT_EQ(text::quoted("\xff"), "'\\xff'");
  EXPECT_EQ(text::quoted("\xe2\x82"), "'\\xe2\\x82'");
  EXPECT_EQ(text::quoted("\xc0\xaf"), "'\\xc0\\xaf'");
  EXPECT_EQ(text::quoted("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");
  EXPECT_EQ(text::quoted("\xf4\x90\x80\x80"), "'\\xf4\\x90\\x80\\x80'");
  EXPECT_EQ(text::quoted("\xc2\x9b"), "'\\xc2\\x9b'");
  EXPECT_EQ(text::quoted(std::string(60, 'a')), "'" + std::string(60, 'a') + "'");
  EXPECT_EQ(text::quoted(std::string(61, 'a')), "'" + std::string(60, 'a') + "...'");
}

TEST(Count, ReadsWhatItWrites) {
  const mla::CounterRng rng(1);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::int64_t value = rng.between(i, 0, std::int64_t{1} << rng.between(i + 100000, 1, 62));
    for (const std::int64_t v : {value, value / 1024 * 1024, value / 1048576 * 1048576}) {
      ASSERT_EQ(text::parse_count(text::format_count(v), "n", ErrorCode::kParse), v) << text::format_count(v);
    }
  }
  EXPECT_EQ(text::format_count(4096), "4k");
  EXPECT_EQ(text::format_count(1 << 20), "1m");
  EXPECT_EQ(text::format_count(0), "0");
  EXPECT_EQ(text::format_count(1025), "1025");
  EXPECT_EQ(text::parse_count("9223372036854775807", "n", ErrorCode::kParse), 9223372036854775807);
}

TEST(Count, PeopleWriteBigLettersAndPowersOfTen) {
  const auto parse = [](std::string_view t) { return text::parse_count(t, "n", ErrorCode::kParse); };
  EXPECT_EQ(parse("128K"), 131072);
  EXPECT_EQ(parse("2M"), 2097152);
  EXPECT_EQ(parse("1e9"), 1000000000);
  EXPECT_EQ(parse("64E3"), 64000);
  EXPECT_EQ(parse("9e18"), 9000000000000000000);
}

TEST(Count, RefusesWithTheReason) {
  const auto parse = [](std::string_view t) {
    return [t] { return text::parse_count(t, "--heads", ErrorCode::kInvalidArgument, 1, 1 << 20); };
  };
  const auto expect = [&](std::string_view t, std::string_view why) {
    expect_error(parse(t), ErrorCode::kInvalidArgument,
                 {"--heads", why, "in 1..1048576", "k (1024) or m (1048576)"});
  };
  expect("", "is empty");
  expect("nan", "'nan', not a number");
  expect("inf", "'inf', not a number");
  expect("0x10", "'0x10' with an unknown suffix 'x10'");
  expect("4g", "'4g' with an unknown suffix 'g'");
  expect("4kk", "unknown suffix 'kk'");
  expect("1e", "unknown suffix 'e'");
  expect("1e0x", "unknown suffix 'e0x'");
  expect("1e-3", "unknown suffix 'e-3'");
  expect("1e19", "unknown suffix 'e19'");
  expect("2e6", "'2e6', too large");
  expect("99e18", "'99e18', too large");
  expect("1.5", "'1.5', not whole");
  expect("-4", "'-4', negative");
  expect("-99999999999999999999", "negative");
  expect("+4", "'+4', not a number");
  expect(" 4", "not a number");
  expect("0", "'0', too small");
  expect("2m", "'2m', too large");
  expect("1048577", "too large");
  expect("99999999999999999999", "too large");
  expect("9223372036854775807k", "too large");
}

TEST(Dims, ScaleUsesTheExpandedWidth) {
  EXPECT_DOUBLE_EQ(mla::plain_softmax_scale({}), 1 / std::sqrt(192.0));
  EXPECT_DOUBLE_EQ(mla::plain_softmax_scale({.qk_rope_head_dim = 0, .qk_nope_head_dim = 64}), 0.125);
}

TEST(Dims, ValidateNamesFieldAndValue) {
  using mla::MlaDims;
  const auto check = [](const MlaDims& dims) { return [dims] { mla::validate(dims); }; };
  const auto expect = [&](const MlaDims& dims, std::string_view field, std::string_view value) {
    expect_error(check(dims), ErrorCode::kInvalidArgument, {field, value});
  };
  EXPECT_NO_THROW(mla::validate(MlaDims{}));
  EXPECT_NO_THROW(mla::validate(
      {.num_heads = 1, .kv_lora_rank = 1, .qk_rope_head_dim = 0, .qk_nope_head_dim = 1, .v_head_dim = 1}));
  expect({.num_heads = 0}, "num_heads is 0", "1..32768");
  expect({.num_heads = 1 << 30}, "num_heads is 1073741824", "1..32768");
  expect({.kv_lora_rank = -512}, "kv_lora_rank is -512", "1..32768");
  expect({.qk_rope_head_dim = -2}, "qk_rope_head_dim is -2", "0..32768");
  expect({.qk_rope_head_dim = 63}, "qk_rope_head_dim is 63", "even");
  expect({.qk_nope_head_dim = 0}, "qk_nope_head_dim is 0", "1..32768");
  expect({.v_head_dim = 0}, "v_head_dim is 0", "1..32768");
}

TEST(Error, CarriesCodeSentenceAndHint) {
  const mla::Error e(ErrorCode::kIo, "no such file", "look again");
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_STREQ(e.what(), "no such file");
  EXPECT_EQ(e.hint(), "look again");
  EXPECT_EQ(mla::Error(ErrorCode::kIo, "x").hint(), "");
}

TEST(Version, SaysWhatWasBuilt) {
  const mla::BuildInfo& info = mla::build_info();
  EXPECT_EQ(text::split(info.version, '.').size(), 3U) << info.version;
  EXPECT_FALSE(info.compiler.empty());
  EXPECT_EQ(info.cuda == "none", info.cuda_archs.empty()) << info.cuda << " / " << info.cuda_archs;
  if (info.git != "unknown") {
    const std::string_view sha = info.git.substr(0, info.git.find('+'));
    EXPECT_GE(sha.size(), 7U) << info.git;
    EXPECT_EQ(sha.find_first_not_of("0123456789abcdef"), std::string_view::npos) << info.git;
  }
}

TEST(Registry, FindsWhatItListsAndSuggestsTheRest) {
  std::vector<std::string> names;
  for (const mla::Backend* backend : mla::backends()) {
    names.emplace_back(backend->info().name);
    EXPECT_EQ(mla::find_backend(names.back()), backend) << "two backends share a name";
    EXPECT_EQ(&mla::get_backend(names.back()), backend);
    EXPECT_FALSE(backend->info().summary.empty());
  }
  EXPECT_EQ(mla::find_backend("no-such"), nullptr);
  expect_error([] { return &mla::get_backend("no-such"); }, ErrorCode::kInvalidArgument, {"'no-such'"});
  if (!names.empty()) {
    const std::string typo = names.front() + "x";
    try {
      static_cast<void>(mla::get_backend(typo));
      FAIL() << typo << " was found";
    } catch (const mla::Error& e) {
      EXPECT_NE(e.hint().find("did you mean '" + names.front() + "'?"), std::string::npos) << e.hint();
    }
  }
}

TEST(Selection, ChoosesTheFirstThatCanAndElseSaysWhy) {
  mla::Device described;  // a GPU known from a file only: nothing can run on it
  described.name = "imagined";
  described.vendor = "nvidia";
  described.origin = mla::DeviceOrigin::kDescribed;
  mla::Device host;
  host.name = "host";
  host.vendor = "cpu";
  host.origin = mla::DeviceOrigin::kHost;
  for (const mla::Device& device : {described, host}) {
    for (const char* words :
         {"decode latent 2q1s64", "prefill head q8", "decode head h7 q4s9 topk3 cache:fp8_ds_mla"}) {
      const mla::AttentionShape shape = mla::parse_shape(words);
      const auto answers = mla::candidates(shape, device);
      ASSERT_EQ(answers.size(), mla::backends().size());
      const mla::Candidate* first = nullptr;
      for (const auto& c : answers) {
        EXPECT_EQ(std::count_if(answers.begin(), answers.end(),
                                [&](const auto& other) { return other.backend == c.backend; }),
                  1);
        EXPECT_EQ(c.support.ok, c.support.why.empty()) << c.backend->info().name;
        EXPECT_FALSE(c.reason.empty()) << c.backend->info().name;
        if (!c.support.ok) {
          EXPECT_EQ(c.reason, c.support.why);
        } else if (first == nullptr) {
          first = &c;
        }
      }
      if (first != nullptr) {
        EXPECT_EQ(&mla::choose_backend(shape, device), first->backend);
        continue;
      }
      try {
        (void)mla::choose_backend(shape, device);
        FAIL() << words << " was taken";
      } catch (const mla::Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
        const std::string message = e.what();
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        for (const std::string& wanted : {to_text(shape), device.name}) {
          EXPECT_NE(message.find(wanted), std::string::npos) << message;
        }
        EXPECT_TRUE(std::any_of(answers.begin(), answers.end(),
                                [&](const auto& c) {
                                  return c.backend->info().on_device == (device.vendor != "cpu") &&
                                         message.ends_with(c.reason);
                                }) ||
                    std::none_of(answers.begin(), answers.end(),
                                 [&](const auto& c) {
                                   return c.backend->info().on_device == (device.vendor != "cpu");
                                 }))
            << message;
      }
    }
  }
  expect_error([&] { return mla::candidates({}, host).size(); }, ErrorCode::kInvalidArgument,
               {"batch is empty"});
}

// Decode wants the absorbed form and prefill the expanded one; oracles stand behind both.
TEST(Selection, ThePhaseDecidesTheForm) {
  mla::Device host;
  host.name = "host";
  host.vendor = "cpu";
  host.origin = mla::DeviceOrigin::kHost;
  for (const auto& [words, wanted] :
       {std::pair{"decode head h16 q1s64", "absorbed"}, {"prefill head h16 q64", "expanded"}}) {
    bool other_form = false, oracle = false;
    for (const auto& c : mla::candidates(mla::parse_shape(words), host)) {
      const mla::BackendInfo& info = c.backend->info();
      EXPECT_FALSE(oracle && !info.oracle) << info.name << " behind an oracle";
      oracle = oracle || info.oracle;
      if (info.oracle) continue;
      EXPECT_FALSE(other_form && info.strategy == wanted) << words << ": " << info.name;
      other_form = other_form || info.strategy != wanted;
    }
  }
}

}  // namespace
