// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/bench_shapes.hpp"

namespace mla::spec {

/// A sweep spec for `mla-bench run --spec -`. Throws kInvalidArgument where the
/// kernels have no such rows.
[[nodiscard]] std::string bench_spec(const capacity::BenchShapes& shapes, const std::string& question);

}  // namespace mla::spec
