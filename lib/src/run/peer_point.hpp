// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/record.hpp"
#include "run/backends.hpp"
#include "run/sampler.hpp"
#include "spec/sweep.hpp"

namespace mla::run {

/// Where a peer's samples are taken.
struct PeerRules {
  bool gpu = false;               ///< graph replays, or plain calls between events where it cannot capture
  std::int64_t rotate_bytes = 0;  ///< of cold inputs together; 0: the peer's own rule
};

/// Lets a peer time itself on arguments in host memory by the rules of the sweep. Fills the times of
/// `record`, its timer and input_sets; throws as PeerBackend::time.
void time_peer(const peer::PeerBackend& backend, const Plan& plan, const AttentionArgs& args,
               const spec::SweepPoint& point, const spec::Measure& measure, const PeerRules& rules,
               report::BenchRecord& record);

}  // namespace mla::run
