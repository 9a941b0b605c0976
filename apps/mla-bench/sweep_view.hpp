// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "program.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {

/// The points of a sweep and what they need, nothing measured.
[[nodiscard]] int dry_run(const spec::Sweep& sweep, double memory_limit, cli::Output output);

}  // namespace mla::bench
