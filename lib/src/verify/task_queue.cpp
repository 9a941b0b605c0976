// SPDX-License-Identifier: Apache-2.0
#include "verify/task_queue.hpp"

#include <exception>
#include <thread>
#include <utility>

namespace mla::verify {

TaskQueue::TaskQueue(std::vector<bool> bulky, std::function<bool()> go_on)
    : bulky_(std::move(bulky)), go_on_(std::move(go_on)) {}

std::optional<std::size_t> TaskQueue::next(std::optional<std::size_t> done) {
  const std::lock_guard lock(mutex_);
  if (done && bulky_[*done]) bulky_is_out_ = false;
  if (!stopped_ && go_on_ && !go_on_()) stopped_ = true;
  if (stopped_) return std::nullopt;
  if (!bulky_is_out_ && !waiting_.empty()) {
    const std::size_t task = waiting_.front();
    waiting_.pop_front();
    bulky_is_out_ = true;
    return task;
  }
  while (next_ < bulky_.size()) {
    const std::size_t task = next_++;
    if (!bulky_[task]) return task;
    if (!bulky_is_out_) {
      bulky_is_out_ = true;
      return task;
    }
    waiting_.push_back(task);
  }
  return std::nullopt;  // who has the bulky one out asks again and gets those that wait
}

void TaskQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

void share_out(TaskQueue& queue, std::size_t workers,
               const std::function<void(std::size_t, std::size_t)>& work) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto serve = [&](std::size_t worker) {
    try {
      for (auto task = queue.next(std::nullopt); task; task = queue.next(task)) work(worker, *task);
    } catch (...) {
      queue.stop();
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t w = 1; w < workers; ++w) threads.emplace_back(serve, w);
    serve(0);
  }  // joins
  if (first) std::rethrow_exception(first);
}

}  // namespace mla::verify
