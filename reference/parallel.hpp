// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace mla::reference::detail {

/// Runs body(0) .. body(tasks - 1) on `threads` threads (0: as many as the machine has), the calling one
/// among them. Which thread runs a task is fixed by its number, and a task is the same work whatever the
/// number of threads: results that only depend on the task are the same bits for any number of threads. The
/// exception of the lowest-numbered task that threw is rethrown after all threads ended. Throws
/// kInvalidArgument for threads < 0.
void parallel_for(std::int64_t tasks, int threads, const std::function<void(std::int64_t)>& body);

}  // namespace mla::reference::detail
