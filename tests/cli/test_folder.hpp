// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace mla::test {

/// A new, empty folder for the test that runs, "mla-bench-123-Suite-Name"; whoever asks for it removes it.
inline std::filesystem::path folder_of_this_test(const std::string& prefix) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "-" + info->name();
  std::ranges::replace(name, '/', '-');  // of a test with parameters: one folder, not one in another
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / (prefix + "-" + std::to_string(getpid()) + "-" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace mla::test
