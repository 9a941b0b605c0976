// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/json_value.hpp"
#include "run_program.hpp"
#include "test_folder.hpp"

/// mla-bench as a user runs it, in a folder of its own.
class BenchTest : public testing::Test {
 protected:
  using Args = std::vector<std::string>;

  void SetUp() override { dir_ = mla::test::folder_of_this_test("mla-bench"); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] mla::test::RunResult bench(const Args& args, mla::test::RunOptions options = {}) const {
    options.directory = dir_.string();
    return mla::test::run_program(MLA_BENCH, args, options);
  }
  /// A sweep of two points that takes milliseconds, and `more`.
  [[nodiscard]] static Args small_run(const Args& more) {
    Args args{"run",
              "--backend",
              "cpu-absorbed,cpu-expanded",
              "--dims",
              "h2/l32/r16/p16/v16",
              "--kv",
              "64",
              "--dtype",
              "f32",
              "--cache",
              "f32",
              "--caches",
              "warm",
              "--min-time",
              "1ms",
              "--noise",
              "50%",
              "--max-time",
              "200ms",
              "--order",
              "given"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  [[nodiscard]] std::string file(const std::string& name) const { return (dir_ / name).string(); }
  [[nodiscard]] static std::string content(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }
  [[nodiscard]] static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
  }
  [[nodiscard]] static mla::json::Value json(const std::string& text) {
    return mla::json::parse(text, "output");
  }

  std::filesystem::path dir_;
};
