// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The option tree of a program as plain data: help, completion and man page are three views of it.
namespace mla::cli {

struct OptionInfo {
  std::vector<std::string> short_names;  ///< without the dash
  std::vector<std::string> long_names;   ///< without the dashes
  std::string positional;                ///< its name, or empty
  std::string group;                     ///< heading in --help; empty: hidden
  std::string description;
  std::string type;  ///< "COUNT", "FILE", "table|json|csv|md|html"; empty for flags
  std::string default_text;
  std::string environment;  ///< variable it is read from, or empty
  bool required = false;
  bool repeatable = false;
  bool often = false;  ///< shown by -h

  [[nodiscard]] bool hidden() const noexcept { return group.empty(); }
  [[nodiscard]] bool flag() const noexcept { return type.empty(); }
  /// The fixed words of a type such as "table|json|csv|md|html"; empty for open types.
  [[nodiscard]] std::vector<std::string> choices() const;
  /// "--output", "-o": long names first.
  [[nodiscard]] std::vector<std::string> dashed_names() const;
};

struct CommandInfo {
  std::string path;  ///< "mla-bench run"
  std::string name;  ///< "run"
  std::string summary;
  std::vector<std::string> examples;
  std::string exit_codes;  ///< "0 it fits, 1 it does not, ..."
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

/// The text of -h (one screen) or --help (everything), wrapped at `width`.
[[nodiscard]] std::string help_text(const CommandInfo& command, bool everything, int width);

/// A completion script. Names of models, GPUs, backends and specs are asked from the program itself when the
/// user presses the key. Throws kInvalidArgument for a shell other than bash, zsh, fish.
[[nodiscard]] std::string completion_script(const CommandInfo& root, std::string_view shell);

/// A man page in roff, without a date, so that builds are reproducible.
[[nodiscard]] std::string man_page(const CommandInfo& root, std::string_view version);

/// "-o, --output FORMAT" as it is shown in help and man page.
[[nodiscard]] std::string option_label(const OptionInfo& option);

/// "mla-bench run [options] FILE..."
[[nodiscard]] std::string usage_line(const CommandInfo& command);

}  // namespace mla::cli
