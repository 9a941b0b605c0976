// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/explain.hpp"
#include "plan/hypotheses.hpp"

namespace mla::capacity {

/// The first number of a kind, or null.
[[nodiscard]] const LogNumber* first_of(const LogReading& log, LogKind kind);

/// What its failed allocations mean.
void add_failures(const LogReading& log, const ModelConfig& model, const Hypothesis& best, Explanation& out);

/// What else the numbers say under the best hypothesis: the arithmetic, lines that seem to contradict, known
/// faults of engines, ranks. `follows`: some number follows from others; else what one alone would mean.
void add_sentences(const LogReading& log, const ModelConfig& model, const Hypothesis& best, bool follows,
                   Explanation& out);

}  // namespace mla::capacity
