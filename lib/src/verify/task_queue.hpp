// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace mla::verify {

/// Hands out tasks 0, 1, ... to several workers. Of the *bulky* ones, which need gigabytes of memory, only
/// one is out at a time; the others wait, and the tasks behind them go first.
class TaskQueue {
 public:
  /// `bulky[i]`: of task i. `go_on` is asked before each task, by one worker at a time; may be empty.
  TaskQueue(std::vector<bool> bulky, std::function<bool()> go_on);
  /// The next task, or nothing: none is left for this worker, or go_on said no. `done`: the task that this worker
  /// had before.
  [[nodiscard]] std::optional<std::size_t> next(std::optional<std::size_t> done);
  /// No further tasks for anyone.
  void stop();

 private:
  std::mutex mutex_;
  std::vector<bool> bulky_;
  std::function<bool()> go_on_;
  std::size_t next_ = 0;
  std::deque<std::size_t> waiting_;
  bool bulky_is_out_ = false, stopped_ = false;
};

/// Runs work(worker, task) for every task of the queue on `workers` threads; worker 0 is the calling thread. What it
/// throws first is thrown here, once all workers have ended.
void share_out(TaskQueue& queue, std::size_t workers,
               const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace mla::verify
