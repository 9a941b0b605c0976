// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "mla/error.hpp"

/// Expects `call` to throw mla::Error of this code whose sentence holds each of `parts`.
template <class Call>
void expect_error(const Call& call, mla::ErrorCode code, const std::vector<std::string_view>& parts) {
  try {
    static_cast<void>(call());
  } catch (const mla::Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    for (const std::string_view part : parts) {
      EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos)
          << "the sentence \"" << e.what() << "\" does not say \"" << part << "\"";
    }
    return;
  }
  FAIL() << "nothing was thrown; wanted an error saying \"" << (parts.empty() ? "" : parts.back()) << "\"";
}
