// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "command_tree.hpp"

namespace mla::cli {
namespace {

/// roff: backslashes and dashes are markup, a dot or quote at the start of a line is a request.
std::string escape(std::string_view text) {
  std::string out;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) out += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

void append_options(std::string& out, const CommandInfo& command) {
  for (const OptionInfo& option : command.options) {
    if (option.hidden()) continue;
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", escape(option_label(option)), escape(option.description));
    if (option.required) out += "Required.\n";
    if (!option.default_text.empty()) out += fmt::format("Default: {}.\n", escape(option.default_text));
    if (!option.environment.empty()) out += fmt::format("Environment: {}.\n", escape(option.environment));
  }
}

void append_examples(std::string& out, const CommandInfo& command) {
  for (const std::string& example : command.examples)
    out += fmt::format(".PP\n.EX\n{}\n.EE\n", escape(example));
}

}  // namespace

std::string man_page(const CommandInfo& root, std::string_view version) {
  std::string upper = root.path;
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out = fmt::format(".TH {} 1 \"\" \"{} {}\" \"User Commands\"\n", escape(upper),
                                escape(root.path), escape(version));
  out += fmt::format(".SH NAME\n{} \\- {}\n", escape(root.path), escape(root.summary));
  out += ".SH SYNOPSIS\n";
  if (root.commands.empty()) out += fmt::format(".B {}\n", escape(usage_line(root)));
  for (const CommandInfo& sub : root.commands) out += fmt::format(".B {}\n.br\n", escape(usage_line(sub)));
  out += ".SH OPTIONS\n";
  append_options(out, root);
  if (!root.commands.empty()) out += ".SH COMMANDS\n";
  for (const CommandInfo& sub : root.commands) {
    out += fmt::format(".SS {}\n{}\n", escape(usage_line(sub)), escape(sub.summary));
    append_options(out, sub);
    append_examples(out, sub);
  }
  out +=
      ".SH EXIT STATUS\n"
      ".TP\n0\nDone, and every check passed.\n"
      ".TP\n1\nA check failed: mismatch, does not fit, slower.\n"
      ".TP\n2\nUsage: bad flag, bad or unreadable input, output that cannot be written.\n"
      ".TP\n3\nThe machine cannot: no device, or no backend supports the request.\n"
      ".TP\n4\nInternal error.\n"
      ".TP\n130\nInterrupted; results so far are on disk.\n"
      ".TP\n141\nThe reader of its output left (as in \"| head\").\n"
      ".SH ENVIRONMENT\n"
      ".TP\nMLA_CONFIG_DIR\nFolder searched first for models, GPUs and sweeps.\n"
      ".TP\nNO_COLOR, TERM=dumb\nNo colour.\n";
  if (!root.examples.empty()) out += ".SH EXAMPLES\n";
  append_examples(out, root);
  return out;
}

}  // namespace mla::cli
