// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "run_program.hpp"
#include "test_folder.hpp"

/// mla-memcalc as a user runs it, in a folder of its own, with the tree's own models and GPUs.
class MemcalcTest : public testing::Test {
 protected:
  using Args = std::vector<std::string>;

  void SetUp() override { dir_ = mla::test::folder_of_this_test("mla-memcalc"); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] mla::test::RunResult memcalc(const Args& args, mla::test::RunOptions options = {}) const {
    options.directory = dir_.string();
    options.env.emplace("MLA_CONFIG_DIR", MLA_SOURCE_DIR "/configs");
    return mla::test::run_program(MLA_MEMCALC, args, options);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return (dir_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  [[nodiscard]] static std::string content(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  [[nodiscard]] static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
  }
  static std::string spelled(const Args& args) {
    std::string line = "mla-memcalc";
    for (const std::string& word : args) line += " " + word;
    return line;
  }
  static void expect_has(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
  }
  static void expect_lacks(const std::string& text, const std::string& part) {
    EXPECT_EQ(text.find(part), std::string::npos) << "\"" << part << "\" is in:\n" << text;
  }
  /// Exit code 2, no output, one sentence and perhaps a hint that say `says`.
  void refused(const Args& args, const std::vector<std::string>& says,
               const std::string& stdin_text = {}) const {
    const mla::test::RunResult run = memcalc(args, {.stdin_text = stdin_text});
    SCOPED_TRACE(spelled(args) + '\n' + run.err);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.starts_with("mla-memcalc: error: "));
    EXPECT_LE(lines(run.err).size(), 2U);
    for (const std::string& part : says) expect_has(run.err, part);
  }

  std::filesystem::path dir_;
};
