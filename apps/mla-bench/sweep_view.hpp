// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "mla/device.hpp"
#include "program.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {

/// What a sweep would run on: the GPU of this machine that there is, or one that is only described.
struct DryRunOn {
  std::optional<Device> gpu, described;
};

/// The points of a sweep and what they need, nothing measured; device backends are asked about the GPU.
[[nodiscard]] int dry_run(spec::Sweep sweep, double memory_limit, const DryRunOn& on, cli::Output output);

}  // namespace mla::bench
