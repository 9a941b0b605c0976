// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report/record.hpp"
#include "run/host.hpp"

namespace mla::run {

/// Now in UTC, "2026-08-22T10:11:12Z".
[[nodiscard]] std::string utc_now();

/// What a reader needs to judge the numbers of this run: program and compiler, processor, caches, threads,
/// load, the ceilings, the command. Never the whole environment, never user or host name.
[[nodiscard]] report::Environment capture_environment(const std::string& command, int threads,
                                                      const HostCeilings& ceilings);

/// One sentence on what that machine could do at best when the run was made: the GPU, where there was one.
[[nodiscard]] std::string ceilings_text(const report::Environment& environment);

/// Reasons to doubt every number of this program: "debug-build", "sanitized".
[[nodiscard]] std::vector<std::string> build_flags();
/// The same for a run on this host, with "busy" (others were running).
[[nodiscard]] std::vector<std::string> host_flags(int threads);

}  // namespace mla::run
