// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "command_tree.hpp"

namespace mla::cli {
namespace {

constexpr std::size_t kLabelWidth = 28;  // labels longer than this get a line of their own
constexpr std::size_t kNarrowest = 40;

/// Breaks `text` at blanks; each line after the first is indented.
std::string wrap(std::string_view text, std::size_t indent, std::size_t width) {
  const std::size_t room = std::max(width, kNarrowest) - indent;
  std::string out;
  std::size_t used = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (used > 0 && used + 1 + word.size() > room) {
      out += '\n' + std::string(indent, ' ');
      used = 0;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
    at = end + 1;
  }
  return out;
}

std::string entry(const std::string& label, const std::string& text, std::size_t width) {
  const std::size_t indent = kLabelWidth + 2;
  std::string out = "  " + label;
  if (label.size() + 4 > indent) {
    out += '\n' + std::string(indent, ' ');
  } else {
    out += std::string(indent - label.size() - 2, ' ');
  }
  return out + wrap(text, indent, width) + '\n';
}

std::string description_of(const OptionInfo& option) {
  std::string text = option.description;
  if (option.required) text += " (required)";
  if (!option.default_text.empty()) text += fmt::format(" [{}]", option.default_text);
  if (!option.environment.empty()) text += fmt::format(" [env {}]", option.environment);
  return text;
}

void append_options(std::string& out, const CommandInfo& command, bool everything, std::size_t width) {
  std::vector<std::string> groups;
  for (const OptionInfo& option : command.options) {
    if (!option.hidden() && std::ranges::find(groups, option.group) == groups.end())
      groups.push_back(option.group);
  }
  const bool selective = !everything && std::ranges::any_of(command.options, &OptionInfo::often);
  bool headed = false;
  for (const std::string& group : groups) {
    if (everything) headed = false;
    for (const OptionInfo& option : command.options) {
      if (option.group != group || (selective && !option.often)) continue;
      if (!headed)
        out += fmt::format("\n{}:\n", everything ? group : selective ? "most used options" : "options");
      headed = true;
      out += entry(option_label(option), description_of(option), width);
    }
  }
}

/// What -h shows of a program's commands: options that at least three of them show there.
void append_common(std::string& out, const CommandInfo& command, std::size_t width) {
  constexpr std::ptrdiff_t kCommands = 3;
  std::vector<const OptionInfo*> seen;
  std::string entries;
  for (const CommandInfo& sub : command.commands) {
    for (const OptionInfo& option : sub.options) {
      const auto same = [&](const OptionInfo& other) { return other.long_names == option.long_names; };
      const auto has = [&](const CommandInfo& one) {
        return std::ranges::any_of(one.options,
                                   [&](const OptionInfo& other) { return other.often && same(other); });
      };
      if (!option.often || option.long_names.empty() ||
          std::ranges::count_if(command.commands, has) < kCommands ||
          std::ranges::any_of(seen, [&](const OptionInfo* other) { return same(*other); })) {
        continue;
      }
      seen.push_back(&option);
      entries += entry(option_label(option), description_of(option), width);
    }
  }
  if (!entries.empty()) out += "\nmost used options of the commands:\n" + entries;
}

void append_command(std::string& out, const CommandInfo& command, bool everything, std::size_t width) {
  out +=
      fmt::format("{}\n\nusage: {}\n", wrap(fmt::format("{}: {}", command.path, command.summary), 0, width),
                  usage_line(command));
  if (!command.commands.empty()) out += "\ncommands:\n";
  for (const CommandInfo& sub : command.commands) out += entry(sub.name, sub.summary, width);
  if (!everything) append_common(out, command, width);
  append_options(out, command, everything, width);
  if (!command.examples.empty()) out += "\nexamples:\n";
  for (const std::string& example : command.examples) out += fmt::format("  {}\n", example);
  if (everything && !command.exit_codes.empty())
    out += '\n' + wrap("exit codes: " + command.exit_codes, 2, width) + '\n';
}

}  // namespace

std::vector<std::string> OptionInfo::choices() const {
  std::vector<std::string> words;
  if (type.find('|') == std::string::npos) return words;
  for (std::size_t at = 0; at <= type.size();) {
    const std::size_t end = std::min(type.find('|', at), type.size());
    words.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::vector<std::string> OptionInfo::dashed_names() const {
  std::vector<std::string> names;
  for (const std::string& name : long_names) names.push_back("--" + name);
  for (const std::string& name : short_names) names.push_back("-" + name);
  return names;
}

std::string option_label(const OptionInfo& option) {
  std::string label = option.positional;
  for (const std::string& name : option.short_names)
    label += fmt::format("{}-{}", label.empty() ? "" : ", ", name);
  for (const std::string& name : option.long_names)
    label += fmt::format("{}--{}", label.empty() ? "" : ", ", name);
  if (!option.flag() && option.positional.empty()) label += ' ' + option.type;
  return label;
}

std::string usage_line(const CommandInfo& command) {
  std::string line = command.path;
  const auto shown = [](const OptionInfo& o) { return !o.hidden() && o.positional.empty(); };
  if (std::ranges::any_of(command.options, shown)) line += " [options]";
  if (!command.commands.empty()) line += " COMMAND";
  for (const OptionInfo& option : command.options) {
    if (option.positional.empty() || option.hidden()) continue;
    const std::string name = option.positional + (option.repeatable ? "..." : "");
    line += option.required ? ' ' + name : fmt::format(" [{}]", name);
  }
  return line;
}

std::string help_text(const CommandInfo& command, bool everything, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 1));
  std::string out;
  append_command(out, command, everything, columns);
  if (!everything) {
    out += fmt::format("\nmore: {} --help\n", command.path);
    return out;
  }
  for (const CommandInfo& sub : command.commands) {
    out += '\n' + std::string(std::min<std::size_t>(columns, 80), '-') + '\n';
    append_command(out, sub, true, columns);
  }
  if (!command.exit_codes.empty()) return out;
  out +=
      "\nexit codes: 0 done and every check passed, 1 a check failed, 2 usage or bad input, 3 the machine "
      "cannot,\n"
      "  4 internal error, 130 interrupted, 141 the reader of its output left\n";
  return out;
}

}  // namespace mla::cli
