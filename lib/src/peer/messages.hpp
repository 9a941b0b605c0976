// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/backend.hpp"

/// The lines of peers/PROTOCOL.md: what is asked and what an answer may be. JSON stays behind this header.
namespace mla::peer {

inline constexpr int kProtocol = 1;

/// What a peer says of itself, once.
struct Facts {
  std::string name, summary, strategy;
  std::string device;                           ///< "cpu", "NVIDIA H200"
  std::map<std::string, std::string> versions;  ///< package to version
  std::vector<std::int32_t> edges;
  bool batch_invariant = false;
  RoundingProfile rounding;
};

/// Its answer to one shape.
struct ShapeAnswer {
  Support support;
  RoundingProfile rounding;
};

/// How a peer times itself; docs/measurement.md says why.
struct TimeRules {
  int warmup = 3;        ///< calls before the first sample
  double preheat = 0;    ///< seconds of the same work, not timed, before the first sample
  int samples = 50;      ///< wanted
  double max_time = 10;  ///< seconds in all; at least one sample is taken
  bool graph = true;     ///< CUDA-graph replay; false: plain calls between two events
  bool cold = true;      ///< inputs rotate through copies larger than the cache
  std::int64_t rotate_bytes =
      0;  ///< least size of all copies together; 0: twice the device's last-level cache
};

struct TimeAnswer {
  std::vector<double> seconds;  ///< one call each, in the order taken
  std::string timer;            ///< "graph", "event" or "wall"
  int copies = 1;               ///< of the inputs that were rotated through
  std::string plan;
};

/// Files and choices of a call.
struct Call {
  std::string in, out;       ///< safetensors files
  std::optional<DType> lse;  ///< type of the LSE that is wanted
  double softmax_scale = 0;
  std::int32_t num_splits = 0;
};

[[nodiscard]] std::string hello_request(std::int64_t id);
[[nodiscard]] std::string supports_request(std::int64_t id, const AttentionShape& shape,
                                           std::int32_t num_splits);
[[nodiscard]] std::string run_request(std::int64_t id, const AttentionShape& shape, const Call& call);
[[nodiscard]] std::string time_request(std::int64_t id, const AttentionShape& shape, const Call& call,
                                       const TimeRules& rules);
[[nodiscard]] std::string quit_request(std::int64_t id);

/// A line that is not yet the answer but asks for more time: {"id":n,"wait":seconds}. Empty for any other
/// line.
[[nodiscard]] std::optional<double> wait_of(std::string_view line, std::int64_t id);

// Answers. All throw kParse with a sentence that quotes what came instead; {"error": text} throws kDevice
// with that text and {"unsupported": text} kUnsupported.

/// Throws kUnsupported with the peer's sentence for {"skip": text}.
[[nodiscard]] Facts parse_hello(std::string_view line, std::int64_t id);
[[nodiscard]] ShapeAnswer parse_supports(std::string_view line, std::int64_t id, const Facts& facts);
/// The plan's description, may be empty.
[[nodiscard]] std::string parse_run(std::string_view line, std::int64_t id);
[[nodiscard]] TimeAnswer parse_time(std::string_view line, std::int64_t id);

}  // namespace mla::peer
