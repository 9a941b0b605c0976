// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// Tokens of one request of a trace.
struct RequestLengths {
  std::int64_t prompt = 0, output = 0;
};

/// What a pool holds of real requests instead of equal ones of the maximum length. All numbers per replica, and of
/// `served` requests where they describe requests.
///
/// At a random moment of a busy engine a request is seen for as long as it answers, so requests count by their output
/// length, and each is somewhere in its answer: it holds its prompt and a uniform share of its output.
struct LengthReport {
  std::int64_t requests = 0;
  std::int64_t too_long = 0;   ///< longer than the context: the engine refuses them
  std::int64_t empty = 0;      ///< no token at all
  std::int64_t served = 0;     ///< the others: all below is about them
  std::int64_t most = 0;       ///< what the engine runs at once, however much fits
  std::string_view most_is{};  ///< what says so: "--max-seqs"
  double mean = 0;             ///< tokens of a finished request
  std::int64_t p50 = 0, p90 = 0, p99 = 0, longest = 0;
  double paging_waste = 0;      ///< share of allocated token slots that stay empty, requests at full length
  double at_full_length = 0;    ///< requests that fit if all hold their final length: pool / mean
  double expected = 0;          ///< requests that fit at a random moment: pool / mean
  std::int64_t certain = 0;     ///< largest number of which 99 % of random moments do not overflow the pool
  std::int64_t worst_case = 0;  ///< all of them at the context's full length
  /// Of a number that fits, what runs at once.
  [[nodiscard]] std::int64_t at_once(double fits) const {
    return fits < static_cast<double>(most) ? static_cast<std::int64_t>(fits) : most;
  }
  std::vector<Line> lines;
};

/// Throws kInvalidArgument for an empty trace or negative lengths. The 99 % are drawn with a fixed seed: equal inputs give
/// equal answers.
[[nodiscard]] MLA_EXPORT LengthReport plan_lengths(const ModelConfig& model, const PlanRequest& request,
                                                   std::span<const RequestLengths> trace);

}  // namespace mla::capacity
