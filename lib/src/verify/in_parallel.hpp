// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "verify/threads.hpp"

namespace mla::verify {

/// Calls f(begin, end) for ranges that together are [0, n), on as many threads as this process may use. `cost` is
/// about the number of values that one index makes or moves: small jobs stay on this thread. f must not
/// throw, and what it does for an index may depend on the index alone. Making large inputs took half the time
/// of a suite on one thread.
template <class Function>
void in_parallel(std::int64_t n, std::int64_t cost, Function f) {
  constexpr std::int64_t kFewest = 1 << 16;  // values for which a thread is worth starting
  const std::int64_t most = threads_to_use();
  const std::int64_t workers =
      std::clamp<std::int64_t>(n * std::max<std::int64_t>(cost, 1) / kFewest, 1, most);
  std::vector<std::jthread> threads;
  for (std::int64_t w = 1; w < workers; ++w)
    threads.emplace_back([&f, n, w, workers] { f(n * w / workers, n * (w + 1) / workers); });
  f(std::int64_t{0}, n / workers);
}

}  // namespace mla::verify
