// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mla::bench {

/// Words that run_process adds to a command line.
inline constexpr std::size_t kProcessWords = 4;

/// Starts this program again as process `process` of the run in `folder`, with the words of that run's command
/// line, and waits for it. It writes to standard error as we do, to standard output not at all, gets our
/// interrupt, and ends when we are killed. Returns its exit code, 128 + the signal that ended it. Throws kIo
/// if it cannot be started.
[[nodiscard]] int run_process(const std::vector<std::string>& words, int process, const std::string& folder);

}  // namespace mla::bench
