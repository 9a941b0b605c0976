// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/savings.hpp"
#include "report/figure.hpp"
#include "report/table.hpp"
#include "request.hpp"

/// The pictures of the answers.
namespace mla::memcalc {

/// Memory of a GPU (of each pipeline stage), and tokens against context for this layout and the other simple ones.
[[nodiscard]] report::Figure plan_figure(const Question& question, const capacity::MemoryPlan& plan);
/// Memory and tokens of the layouts in `rows`.
[[nodiscard]] report::Figure compare_figure(const Question& question,
                                            const std::vector<capacity::MemoryPlan>& plans,
                                            const std::vector<std::size_t>& rows);
/// Tokens against context, a line for each setting that differs.
[[nodiscard]] report::Figure sweep_figure(const report::Table& plans);
/// Bytes of a token, models side by side: the columns of the per-token table.
[[nodiscard]] report::Figure table_figure(const report::Table& per_token);
/// Read, stored in a full cache, stored in a ring.
[[nodiscard]] report::Figure savings_figure(const capacity::Savings& savings);

/// Draws into FILE.svg or FILE.png. Throws kInvalidArgument for another name or without a figure, kUnsupported without gnuplot,
/// kIo if it cannot be written.
void draw(const std::optional<report::Figure>& figure, const std::string& file);

/// The other layouts of as many GPUs that people weigh against one another: tp, tp with dcp, replicas, in the pipeline
/// stages given.
[[nodiscard]] std::vector<capacity::Layout> rival_layouts(const Question& question, std::int64_t gpus);

}  // namespace mla::memcalc
