// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "command_tree.hpp"
#include "mla/error.hpp"

namespace mla::cli {
namespace {

/// Option types whose values only the installed program knows; "list X --names" of mla-bench prints them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kDynamic{
    {{"MODEL", "models"}, {"GPU", "gpus"}, {"BACKEND", "backends"}, {"SPEC", "specs"}}};

/// Type words may be plural or lists ("BACKENDS", "MODEL..."): the beginning decides.
std::string dynamic_list(const OptionInfo& option) {
  for (const auto& [type, list] : kDynamic) {
    if (option.type.starts_with(type)) return fmt::format("mla-bench list {} --names 2>/dev/null", list);
  }
  return {};
}

bool takes_path(const OptionInfo& option) {
  return option.type.starts_with("FILE") || option.type.starts_with("DIR") || option.type.starts_with("PATH");
}

std::vector<std::string> words_of(const CommandInfo& command) {
  std::vector<std::string> words;
  for (const OptionInfo& option : command.options) {
    if (option.hidden()) continue;
    for (std::string& name : option.dashed_names()) words.push_back(std::move(name));
  }
  return words;
}

std::vector<std::string> command_names(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const CommandInfo& sub : command.commands) names.push_back(sub.name);
  return names;
}

std::string identifier(std::string name) {
  std::ranges::replace(name, '-', '_');
  std::ranges::replace(name, ' ', '_');
  return name;
}

/// Within single quotes of a shell.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_value_cases(const CommandInfo& command) {
  std::string out;
  for (const OptionInfo& option : command.options) {
    if (option.hidden() || option.flag() || !option.positional.empty()) continue;
    std::string action = "return";
    if (const std::vector<std::string> choices = option.choices(); !choices.empty()) {
      action = fmt::format("COMPREPLY=($(compgen -W {} -- \"$cur\")); return",
                           quoted(fmt::format("{}", fmt::join(choices, " "))));
    } else if (const std::string list = dynamic_list(option); !list.empty()) {
      action = fmt::format("COMPREPLY=($(compgen -W \"$({})\" -- \"$cur\")); return", list);
    } else if (takes_path(option)) {
      action = "COMPREPLY=($(compgen -f -- \"$cur\")); return";
    }
    out += fmt::format("      {}) {};;\n", fmt::join(option.dashed_names(), "|"), action);
  }
  return out;
}

std::string bash(const CommandInfo& root) {
  const std::string function = fmt::format("_{}", identifier(root.path));
  std::string out = fmt::format("# bash completion of {}\n{}() {{\n", root.path, function);
  out += "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" command= word\n";
  out += "  COMPREPLY=()\n";
  const std::vector<std::string> names = command_names(root);
  if (!names.empty()) {
    out += "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n";
    out += fmt::format("    case \"$word\" in {}) command=\"$word\"; break;; esac\n  done\n",
                       fmt::join(names, "|"));
  }
  out += "  case \"$command\" in\n";
  const auto branch = [&](const CommandInfo& command, std::string_view pattern) {
    std::vector<std::string> words = words_of(command);
    if (&command == &root) words.insert(words.begin(), names.begin(), names.end());
    out +=
        fmt::format("    {})\n      case \"$prev\" in\n{}      esac\n", pattern, bash_value_cases(command));
    for (const OptionInfo& option : command.options) {
      if (option.positional.empty() || option.hidden()) continue;
      if (const std::vector<std::string> choices = option.choices(); !choices.empty()) {
        words.insert(words.end(), choices.begin(), choices.end());
      }
    }
    out += fmt::format("      COMPREPLY=($(compgen -W {} -- \"$cur\"));;\n",
                       quoted(fmt::format("{}", fmt::join(words, " "))));
  };
  for (const CommandInfo& sub : root.commands) branch(sub, sub.name);
  branch(root, "*");
  out += fmt::format("  esac\n}}\ncomplete -o default -F {} {}\n", function, root.path);
  return out;
}

/// zsh reads descriptions in brackets; colons and brackets in them are escaped.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_specs(const CommandInfo& command) {
  std::string out;
  for (const OptionInfo& option : command.options) {
    if (option.hidden()) continue;
    std::string action;
    if (const std::vector<std::string> choices = option.choices(); !choices.empty()) {
      action = fmt::format("({})", fmt::join(choices, " "));
    } else if (const std::string list = dynamic_list(option); !list.empty()) {
      action = fmt::format("compadd -- ${{(f)\"$({})\"}}", list);
    } else if (takes_path(option)) {
      action = "_files";
    }
    if (!option.positional.empty()) {
      out += fmt::format("    {} \\\n", quoted(fmt::format("{}:{}:{}", option.repeatable ? "*" : "",
                                                           zsh_text(option.positional), action)));
      continue;
    }
    for (const std::string& name : option.dashed_names()) {
      std::string spec = fmt::format("{}[{}]", name, zsh_text(option.description));
      if (!option.flag()) spec += fmt::format(":{}:{}", zsh_text(option.type), action);
      out += fmt::format("    {} \\\n", quoted(spec));
    }
  }
  return out;
}

std::string zsh(const CommandInfo& root) {
  const std::string function = fmt::format("_{}", identifier(root.path));
  std::string out = fmt::format("#compdef {}\n{}() {{\n", root.path, function);
  if (!root.commands.empty()) {
    out += "  local -a commands\n  commands=(\n";
    for (const CommandInfo& sub : root.commands)
      out += fmt::format("    {}\n", quoted(fmt::format("{}:{}", sub.name, zsh_text(sub.summary))));
    out += "  )\n  local command=${words[(r)(";
    out += fmt::format("{}", fmt::join(command_names(root), "|"));
    out += ")]}\n  case \"$command\" in\n";
    for (const CommandInfo& sub : root.commands) {
      out += fmt::format("  {}) _arguments -s \\\n{}    '*:: :_files';;\n", sub.name, zsh_specs(sub));
    }
    out += fmt::format("  *) _arguments -s \\\n{}    && return\n    _describe command commands;;\n  esac\n",
                       zsh_specs(root));
  } else {
    out += fmt::format("  _arguments -s \\\n{}    '*:: :_files'\n", zsh_specs(root));
  }
  return out + fmt::format("}}\ncompdef {} {}\n", function, root.path);
}

std::string fish_options(const CommandInfo& root, const CommandInfo& command, const std::string& condition) {
  std::string out;
  for (const OptionInfo& option : command.options) {
    if (option.hidden() || !option.positional.empty()) continue;
    std::string line = fmt::format("complete -c {}{}", root.path, condition);
    for (const std::string& name : option.short_names) line += " -s " + name;
    for (const std::string& name : option.long_names) line += " -l " + name;
    if (const std::vector<std::string> choices = option.choices(); !choices.empty()) {
      line += fmt::format(" -xa {}", quoted(fmt::format("{}", fmt::join(choices, " "))));
    } else if (const std::string list = dynamic_list(option); !list.empty()) {
      line += fmt::format(" -xa {}", quoted(fmt::format("({})", list)));
    } else if (takes_path(option)) {
      line += " -rF";
    } else if (!option.flag()) {
      line += " -x";
    }
    out += fmt::format("{} -d {}\n", line, quoted(option.description));
  }
  return out;
}

std::string fish(const CommandInfo& root) {
  std::string out = fmt::format("# fish completion of {}\n", root.path);
  for (const CommandInfo& sub : root.commands) {
    out += fmt::format("complete -c {} -n __fish_use_subcommand -xa {} -d {}\n", root.path, sub.name,
                       quoted(sub.summary));
  }
  out += fish_options(root, root, root.commands.empty() ? "" : " -n __fish_use_subcommand");
  for (const CommandInfo& sub : root.commands) {
    out += fish_options(root, sub, fmt::format(" -n {}", quoted("__fish_seen_subcommand_from " + sub.name)));
  }
  return out;
}

}  // namespace

std::string completion_script(const CommandInfo& root, std::string_view shell) {
  if (shell == "bash") return bash(root);
  if (shell == "zsh") return zsh(root);
  if (shell == "fish") return fish(root);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no completion for the shell '{}'", shell),
              "allowed are bash, zsh and fish");
}

}  // namespace mla::cli
