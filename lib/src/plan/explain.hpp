// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/log_reader.hpp"

namespace mla::capacity {

/// One logged number and what the best hypothesis makes of it.
struct Explained {
  LogNumber logged;
  bool planned = false;  ///< the planner computes such a number from the others
  bool matches = false;  ///< inside the interval that rounding leaves
  double low = 0, high = 0;
  double gap = 0;   ///< (logged - nearest planned) / logged
  std::string how;  ///< from what it follows, or why it does not
};

struct Explanation {
  std::string hypothesis;  ///< "not determined" or "cache bf16, blocks of 64, tp 8, rules of vllm 0.10"
  std::vector<Explained> numbers;
  std::vector<std::string> sentences;  ///< the answer, most important first
  std::vector<std::string> others;     ///< hypotheses that explain as much
  /// Every number that follows from others does, in the format that the log asks for, and bytes are among them:
  /// counts alone hold for any model.
  bool explained = false;
};

/// Tries what the log leaves open (format, layout, block, prediction layers, engine version) and keeps the
/// simplest hypothesis that explains most of the numbers.
[[nodiscard]] MLA_EXPORT Explanation explain(const LogReading& log, const ModelConfig& model);

/// Names to try for a model as a log calls it: "deepseek-ai/DeepSeek-V2-Lite-Chat" ->
/// "deepseek-v2-lite-chat", "deepseek-v2-lite", ...; longest first.
[[nodiscard]] MLA_EXPORT std::vector<std::string> model_names(const std::string& logged);

}  // namespace mla::capacity
