// SPDX-License-Identifier: Apache-2.0
#include "verify/threads.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

namespace mla::verify {
namespace {

std::atomic<int> limit{0};

}  // namespace

void limit_threads(int threads) noexcept {
  limit = std::max(threads, 0);
}

int thread_limit() noexcept {
  return limit;
}

int threads_to_use() noexcept {
  const int most = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return limit > 0 ? std::min<int>(limit, most) : most;
}

}  // namespace mla::verify
