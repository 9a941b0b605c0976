// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/device.hpp"
#include "report/record.hpp"
#include "spec/sweep.hpp"

/// Points on a machine that is described but not here: what the least work and the nominal peaks allow at
/// best. Nothing is measured, and every record says so (timer "modelled", flag "modelled", no samples).
namespace mla::run {

/// "model-absorbed", "model-expanded": the two forms, without any kernel.
[[nodiscard]] std::vector<std::string> modelled_backends();

/// The floor of one point: max(least bytes / bandwidth, FLOPs of the form / dense peak of the element type).
/// Status "unsupported" with the reason where the device has no such peak, the cache does not fit its memory,
/// or the form does not exist in that space. Throws kInvalidArgument for a backend that is not one of
/// modelled_backends().
[[nodiscard]] report::BenchRecord model_point(const spec::SweepPoint& point, const Device& device,
                                              const std::string& spec_name);

}  // namespace mla::run
