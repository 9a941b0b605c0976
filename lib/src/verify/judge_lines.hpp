// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "verify/oracles.hpp"
#include "verify/run_case.hpp"

/// The lines between an IsolatedJudge and its worker, one JSON object each.
namespace mla::verify {

struct JudgeRequest {
  std::string backend;
  Case c;
  std::string oracle;  ///< name, or empty: compare with the reference
  int repeats = 10;
};
[[nodiscard]] std::string to_line(const JudgeRequest& request);
/// All parse functions throw kParse for what is no such line.
[[nodiscard]] JudgeRequest parse_request(std::string_view line);

/// What a worker says once the reference is made and only the backend's own time is left.
inline constexpr std::string_view kReadyLine = R"({"ready":true})";

[[nodiscard]] std::string to_line(const Verdict& verdict);
[[nodiscard]] Verdict parse_verdict(std::string_view line);
[[nodiscard]] std::string to_line(const OracleOutcome& outcome);
[[nodiscard]] OracleOutcome parse_outcome(std::string_view line);

}  // namespace mla::verify
