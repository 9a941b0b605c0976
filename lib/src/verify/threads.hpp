// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mla::verify {

/// How many threads the reference and the making of inputs may use in this process: all that the machine has
/// (0), or fewer where several judges share it. Set once, before anything is judged.
void limit_threads(int threads) noexcept;
/// As set; 0: no limit.
[[nodiscard]] int thread_limit() noexcept;
/// The limit, or what the machine has; at least 1.
[[nodiscard]] int threads_to_use() noexcept;

}  // namespace mla::verify
