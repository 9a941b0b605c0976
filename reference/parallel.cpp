// SPDX-License-Identifier: Apache-2.0
#include "parallel.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

#include "check.hpp"

namespace mla::reference::detail {
namespace {

struct Failure {
  std::int64_t task = -1;
  std::exception_ptr what;
};

}  // namespace

void parallel_for(std::int64_t tasks, int threads, const std::function<void(std::int64_t)>& body) {
  require_at_least("threads", threads, 0);
  const std::int64_t available = threads > 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t workers = std::clamp<std::int64_t>(tasks, 1, available);
  std::vector<Failure> failures(static_cast<std::size_t>(workers));
  // Interleaved, not in runs: neighbouring tasks belong to one request, and requests differ in length.
  const auto work = [&](std::int64_t worker) {
    Failure& failure = failures[static_cast<std::size_t>(worker)];
    for (std::int64_t task = worker; task < tasks; task += workers) {
      try {
        body(task);
      } catch (...) {
        failure = {task, std::current_exception()};
        return;
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    pool.reserve(static_cast<std::size_t>(workers - 1));
    for (std::int64_t worker = 1; worker < workers; ++worker) pool.emplace_back(work, worker);
    work(0);
  }  // joins
  const Failure* first = nullptr;
  for (const Failure& failure : failures) {
    if (failure.what && (first == nullptr || failure.task < first->task)) first = &failure;
  }
  if (first != nullptr) std::rethrow_exception(first->what);
}

}  // namespace mla::reference::detail
