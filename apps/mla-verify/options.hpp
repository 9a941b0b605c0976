// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <variant>

#include "commands.hpp"

namespace mla::verify_app {

using Request = std::variant<GoldenRequest, RunRequest, OraclesRequest, MutantsRequest, LayerRequest,
                             IndexRequest, CapabilitiesRequest, WorkerRequest>;

/// Reads the command line. A value in `exit_code` ends the program (help, version, a usage error).
[[nodiscard]] Request read_command_line(int argc, char** argv, std::optional<int>& exit_code);

}  // namespace mla::verify_app
