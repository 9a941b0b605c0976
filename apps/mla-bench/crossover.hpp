// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "session.hpp"

namespace mla::bench {

/// Throws what find_crossover would refuse before it measures anything: a wrong axis, not two backends, more
/// than one shape.
void check_crossover(const std::string& axis, const spec::SweepSpec& spec);

/// Looks for the value of one axis where one of two backends overtakes the other, by bisection of the range
/// that the axis has in the spec, and prints it. Every point measured is kept like those of a sweep.
[[nodiscard]] int find_crossover(const std::string& axis, const spec::SweepSpec& spec,
                                 const run::SweepOptions& options, Keeper& keeper, const Session& session,
                                 cli::Output output);

}  // namespace mla::bench
