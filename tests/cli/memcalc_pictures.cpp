// SPDX-License-Identifier: Apache-2.0
// --plot and -o html: what is drawn, and what is said where it cannot be.
#include <cstdlib>

#include "memcalc_fixture.hpp"

namespace {

using mla::test::RunResult;

class MemcalcPictures : public MemcalcTest {
 protected:
  void SetUp() override {
    MemcalcTest::SetUp();
    has_gnuplot_ = std::system("command -v gnuplot >/dev/null") == 0;
  }
  const Args plan_{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "32k"};
  [[nodiscard]] Args plan_and(const Args& more) const {
    Args args = plan_;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  bool has_gnuplot_ = false;
};

TEST_F(MemcalcPictures, EachCommandDraws) {
  if (!has_gnuplot_) GTEST_SKIP() << "gnuplot is not installed";
  const std::pair<Args, std::vector<std::string>> cases[] = {
      {plan_,
       {"Memory of a GPU, TP8+DCP8", "weights", "cache", "DP8+EP8",
        "context (tokens of a sequence, k = 1,024)"}},
      {{"plan", "deepseek-v3", "--gpu", "h200", "--pp", "4", "--tp", "4"}, {"stage 0", "stage 3"}},
      {{"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8"}, {"PP2xTP4", "activations"}},
      {{"table", "deepseek-v3", "gemma-3-27b"}, {"deepseek-v3", "gemma-3-27b", "as MHA"}},
      {{"sweep", "deepseek-v3", "kimi-k2", "--gpu", "h200", "--gpus", "16", "--context", "8k..64k:x2",
        "--cache", "bf16,fp8"},
       {"deepseek-v3", "kimi-k2", "fp8"}},
      {{"savings", "gemma-3-27b"}, {"52 layers: window 1,024 of its own", "stored, ring cache"}}};
  for (const auto& [base, parts] : cases) {
    Args args = base;
    args.insert(args.end(), {"--plot", "picture.svg"});
    std::filesystem::remove(file("picture.svg"));
    const RunResult run = memcalc(args);
    EXPECT_EQ(run.exit_code, 0) << spelled(args) << run.err;
    EXPECT_NE(run.out, "") << "the answer is printed too";
    const std::string picture = content(file("picture.svg"));
    EXPECT_NE(picture.find("<svg"), std::string::npos) << spelled(args);
    for (const std::string& part : parts) {
      std::string escaped = part;
      EXPECT_NE(picture.find(escaped), std::string::npos) << spelled(args) << ": " << part;
    }
  }
}

TEST_F(MemcalcPictures, PngIsPng) {
  if (!has_gnuplot_) GTEST_SKIP() << "gnuplot is not installed";
  const RunResult run = memcalc(plan_and({"--plot", "picture.png"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(content(file("picture.png")).substr(0, 8), "\x89PNG\r\n\x1a\n");
}

TEST_F(MemcalcPictures, WhatCannotBeDrawnOrWritten) {
  const auto refused = [&](const Args& more, int code, const std::vector<std::string>& says,
                           mla::test::RunOptions options = {}) {
    const RunResult run = memcalc(plan_and(more), std::move(options));
    SCOPED_TRACE(spelled(more) + run.err);
    EXPECT_EQ(run.exit_code, code);
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.starts_with("mla-memcalc: error: "));
    for (const std::string& part : says) expect_has(run.err, part);
    EXPECT_LE(lines(run.err).size(), 2U);
  };
  refused({"--plot", "picture.pdf"}, 2, {"'picture.pdf'", ".svg", ".png"});
  refused({"--plot", "picture"}, 2, {"'picture'"});
  refused({"--plot", ""}, 2, {"--plot is empty"});
  refused({"--plot", "picture.svg"}, 3, {"gnuplot", "apt-get install gnuplot-nox"},
          {.env = {{"PATH", "/nonexistent"}}});
  EXPECT_FALSE(std::filesystem::exists(file("picture.svg")));
  if (!has_gnuplot_) return;
  refused({"--plot", "none/picture.svg"}, 2, {"cannot write 'none/picture.svg'", "No such file"});
  std::filesystem::create_symlink("/dev/full", file("full.svg"));
  refused({"--plot", "full.svg"}, 2, {"cannot write 'full.svg'", "No space left on device"});
  std::filesystem::create_directory(file("folder.svg"));
  refused({"--plot", "folder.svg"}, 2, {"cannot write 'folder.svg'"});
}

TEST_F(MemcalcPictures, OneOfflinePage) {
  const RunResult run = memcalc(plan_and({"-o", "html", "--versus", "mha", "--formulas"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(run.out.starts_with("<!DOCTYPE html>"));
  for (const char* part :
       {"fits ", "Memory of a GPU", "What fits", "If it cached K and V heads", "Formulas",
        "61 layers x (512 + 64) x 2 B", "mla-memcalc plan deepseek-v3 --gpu h200", "</html>"}) {
    expect_has(run.out, part);
  }
  if (has_gnuplot_) expect_has(run.out, "src=\"data:image/svg+xml;base64,");
  // Nothing is fetched from anywhere.
  for (const char* link : {"src=\"http", "href=\"http", "url(http", "@import", "<link"})
    expect_lacks(run.out, link);
  for (const Args& args :
       {Args{"table"}, Args{"examples"}, Args{"list", "gpus"}, Args{"savings", "deepseek-v3"},
        Args{"compare", "kimi-k2", "--gpu", "h200", "--gpus", "16"}}) {
    Args html = args;
    html.insert(html.end(), {"-o", "html"});
    const RunResult page = memcalc(html);
    EXPECT_EQ(page.exit_code, 0) << spelled(html) << page.err;
    EXPECT_TRUE(page.out.ends_with("</html>\n")) << spelled(html);
  }
}

TEST_F(MemcalcPictures, APageWithoutGnuplotNamesThePackage) {
  const RunResult run = memcalc(plan_and({"-o", "html"}), {.env = {{"PATH", "/nonexistent"}}});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(run.out, "gnuplot");
  expect_has(run.out, "apt-get install gnuplot-nox");
  expect_has(run.out, "What fits");
}

TEST_F(MemcalcPictures, NamesCannotBreakAPage) {
  write("config.json",
        R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
    "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 1000,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})");
  std::filesystem::create_directory(file("a <b> \"c\" & $(touch x) `d`"));
  std::filesystem::rename(file("config.json"), file("a <b> \"c\" & $(touch x) `d`/config.json"));
  const RunResult run = memcalc({"plan", "a <b> \"c\" & $(touch x) `d`", "--gpu", "l4", "-o", "html"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(run.out, "a &lt;b&gt; &quot;c&quot; &amp; $(touch x)");
  expect_lacks(run.out, "<b>");
  EXPECT_FALSE(std::filesystem::exists(file("x")));
  if (!has_gnuplot_) return;
  const RunResult drawn = memcalc({"table", "a <b> \"c\" & $(touch x) `d`", "--plot", "p.svg"});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_FALSE(std::filesystem::exists(file("x"))) << "backquotes of a name must not reach a shell";
}

}  // namespace
