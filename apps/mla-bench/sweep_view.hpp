// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "mla/device.hpp"
#include "program.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {

/// The points of a sweep and what they need, nothing measured; device backends are asked about `gpu`.
[[nodiscard]] int dry_run(const spec::Sweep& sweep, double memory_limit, const std::optional<Device>& gpu,
                          cli::Output output);

}  // namespace mla::bench
