// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// Tokens of one request of a trace.
struct RequestLengths {
  std::int64_t prompt = 0, output = 0;
};

/// What a pool holds of real requests instead of equal ones of the maximum length. All numbers per replica.
struct LengthReport {
  std::int64_t requests = 0;
  std::int64_t too_long = 0;  ///< longer than the context: the engine refuses them
  double mean = 0;            ///< tokens of a finished request
  std::int64_t p50 = 0, p90 = 0, p99 = 0, longest = 0;
  double paging_waste = 0;      ///< share of allocated token slots that stay empty, requests at full length
  double at_full_length = 0;    ///< requests at once if each holds its final length: usable / mean
  double running = 0;           ///< at a random moment: answers half done, long answers seen more often
  std::int64_t tail = 0;        ///< at full length, with 99 % certainty that the pool does not overflow
  std::int64_t worst_case = 0;  ///< all of them at the context's full length
  std::vector<Line> lines;
};

/// Throws kInvalidArgument for an empty trace.
[[nodiscard]] MLA_EXPORT LengthReport plan_lengths(const ModelConfig& model, const PlanRequest& request,
                                                   std::span<const RequestLengths> trace);

}  // namespace mla::capacity
