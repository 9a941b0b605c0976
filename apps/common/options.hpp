// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "program.hpp"

/// What the three programs share with CLI11. Included only by apps/*/options.cpp (CLI11 costs 16 s a file).
namespace mla::cli {

/// Prepares the root: name, summary, --version (also --version --json), -h (one screen) and --help (everything),
/// --config-dir, hidden --completion bash|zsh|fish and --man, our formatter (groups, defaults, units, terminal width).
/// `examples` are the three lines shown under -h.
void setup_root(CLI::App& app, const std::string& summary, const std::vector<std::string>& examples);

/// -o/--output table|json|csv|md, --color, -q/--quiet.
void add_output_options(CLI::App& app, Output& output);

/// Parses argv. Empty: go on. A value: the program ends with that code (help, version, completion, man: kOk; an error:
/// kUsage after one sentence with a did-you-mean suggestion on stderr).
[[nodiscard]] std::optional<int> parse(CLI::App& app, int argc, char** argv);

}  // namespace mla::cli
