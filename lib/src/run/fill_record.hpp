// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "report/record.hpp"
#include "run/sampler.hpp"
#include "spec/sweep.hpp"

/// What records of CPUs and GPUs have in common.
namespace mla::run {

inline constexpr double kMicro = 1e6;

/// Everything known before anything is measured.
[[nodiscard]] report::BenchRecord blank_record(const spec::SweepPoint& point, const spec::Measure& measure,
                                               std::string_view timer);

/// Times and the rates that follow from them; record.bytes and flops must be there. Flags "noisy" and
/// "interrupted".
void add_samples(report::BenchRecord& record, const Samples& samples, std::int64_t new_tokens);

/// What a machine can do at best.
struct Ceilings {
  double bytes_per_s = 0, flops = 0;
  double launch_seconds = 0;  ///< of one call, whatever it does
};
/// floor = max(bytes / ceiling, least FLOPs / ceiling) + launch; warm rows have no memory floor. Flag
/// "above-floor".
void add_floor(report::BenchRecord& record, const Ceilings& ceilings);

}  // namespace mla::run
