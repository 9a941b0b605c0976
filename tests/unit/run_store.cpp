// SPDX-License-Identifier: Apache-2.0
// The record file: it only grows, by whole lines.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "expect_error.hpp"
#include "run/store.hpp"

namespace {

namespace fs = std::filesystem;
using mla::ErrorCode;
using mla::run::RecordStore;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("mla-store-" + std::to_string(getpid()) + "-" +
                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  static std::string content(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  fs::path dir_;
};

TEST_F(StoreTest, MakesTheFolderAndAppends) {
  RecordStore store(dir_ / "a" / "run.jsonl", false);
  store.append("one\n");
  store.append("two\n");
  EXPECT_EQ(content(store.path()), "one\ntwo\n");
}

TEST_F(StoreTest, NeverOverwrites) {
  const fs::path file = dir_ / "run.jsonl";
  RecordStore(file, false).append("one\n");
  expect_error([&] { return RecordStore(file, false).path(); }, ErrorCode::kInvalidArgument,
               {"run.jsonl", "never overwrites"});
  EXPECT_EQ(content(file), "one\n");
}

TEST_F(StoreTest, ResumesBehindTheLastWholeLine) {
  const fs::path file = dir_ / "run.jsonl";
  RecordStore(file, false).append("one\ntw");
  RecordStore(file, true).append("three\n");
  EXPECT_EQ(content(file), "one\nthree\n");
  expect_error([&] { return RecordStore(dir_ / "other.jsonl", true).path(); }, ErrorCode::kInvalidArgument,
               {"other.jsonl"});
}

TEST_F(StoreTest, AFullDiskIsAnErrorAndLeavesWholeLines) {
  const fs::path file = dir_ / "run.jsonl";
  RecordStore store(file, false);
  store.append("one\n");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);  // then a write past the limit fails half way, as on a full disk
  const rlimit small{8, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(
      [&] {
        store.append("a line of more than eight bytes\n");
        return 0;
      },
      ErrorCode::kIo, {"cannot write", "run.jsonl", "File too large"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(content(file), "one\n");
}

TEST_F(StoreTest, AFolderThatCannotBeMadeIsAnError) {
  expect_error([] { return RecordStore("/dev/null/x/run.jsonl", false).path(); }, ErrorCode::kIo,
               {"/dev/null/x"});
}

TEST_F(StoreTest, UnusedFolderCountsUp) {
  EXPECT_EQ(mla::run::unused_folder(dir_), dir_);
  fs::create_directories(dir_);
  EXPECT_EQ(mla::run::unused_folder(dir_), dir_.string() + "-2");
  fs::create_directories(dir_.string() + "-2");
  EXPECT_EQ(mla::run::unused_folder(dir_), dir_.string() + "-3");
  fs::remove_all(dir_.string() + "-2");
}

}  // namespace
