// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "program.hpp"

/// What the three programs share with CLI11. Included only by apps/*/options.cpp (CLI11 costs 16 s a file).
/// Conventions: every option has a type_name in capitals ("COUNT", "FILE", "MODEL", "GPU", "BACKENDS") or as
/// fixed words "a|b|c" (completion reads it), a group() as heading of --help (the empty group hides it), and
/// values are read by lib/src/spec/values.hpp, so that errors speak one language.
namespace mla::cli {

/// Prepares the root, made as CLI::App app("", "mla-x"), before any subcommand is added: summary, --version
/// (also
/// --version --json), -h (one screen) and --help (everything), --config-dir, hidden --completion
/// bash|zsh|fish and
/// --man, our formatter (groups, defaults, units, terminal width). `examples` are the three lines shown under
/// -h.
void setup_root(CLI::App& app, const std::string& summary, const std::vector<std::string>& examples);

/// Example lines of a subcommand.
void set_examples(const CLI::App& command, std::vector<std::string> examples);

/// What the exit codes of a command mean, for its --help; without it the program's general list is shown.
void set_exit_codes(const CLI::App& command, std::string codes);

/// Marks an option as one that -h shows. Without any mark -h shows all of the command's options.
CLI::Option* often(CLI::Option* option);

/// -o/--output table|json|csv|md|html, --color, -q/--quiet.
void add_output_options(CLI::App& app, Output& output);

/// --plugin FILE, repeatable: loads backends from shared objects (mla/plugin.h) while the command line is read, before
/// anything looks for backends.
void add_plugin_option(CLI::App& app);

/// Parses argv. Empty: go on. A value: the program ends with that code (help, version, completion, man: kOk;
/// an error: kUsage after one sentence with a did-you-mean suggestion on stderr). An mla::Error thrown by a
/// callback passes through to guard().
[[nodiscard]] std::optional<int> parse(CLI::App& app, int argc, char** argv);

}  // namespace mla::cli
