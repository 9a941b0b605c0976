// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace mla::verify {

/// How a program that was started ended.
struct ChildResult {
  int exit_code = -1;  ///< if it ended by itself
  int signal = 0;      ///< if it died of one
  bool timed_out = false;
  std::string out, err;
};

/// Runs a program to its end, or kills it after `timeout` seconds. Throws kIo if it cannot be started.
[[nodiscard]] ChildResult run_child(const std::vector<std::string>& command, double timeout);

/// Path of the running program.
[[nodiscard]] std::string own_program();

}  // namespace mla::verify
