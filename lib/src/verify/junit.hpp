// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "verify/oracles.hpp"
#include "verify/run_suite.hpp"

namespace mla::verify {

/// JUnit XML, one test case a verdict, for CI systems.
[[nodiscard]] std::string to_junit(const SuiteRun& run, const OracleRun& oracles,
                                   std::string_view suite_name);

/// The whole of a file. Throws kIo.
[[nodiscard]] std::string read_file(const std::string& path);
/// Throws kIo as write_file would: asked before long work, so that its result is not lost.
void require_writable(const std::string& path);
/// Writes `text` to a file by way of a temporary one beside it. Throws kIo.
void write_file(const std::string& path, std::string_view text);

}  // namespace mla::verify
