// SPDX-License-Identifier: Apache-2.0
// Help, completion and man page from one small option tree; the shells themselves judge the scripts where
// they are installed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "command_tree.hpp"
#include "mla/error.hpp"
#include "run_program.hpp"

namespace {

using namespace mla::cli;
using mla::test::run_program;

CommandInfo sample() {
  CommandInfo root{"mla-x", "mla-x", "does x", {"mla-x run --model a"}, {}, {}, {}};
  OptionInfo help{{"h"}, {}, "", "General", "Show help", "", "", "", false, false, false};
  OptionInfo hidden{{}, {"man"}, "", "", "", "", "", "", false, false, false};
  root.options = {help, hidden};
  CommandInfo run{"mla-x run", "run", "runs it", {}, {}, {}, {}};
  run.options = {
      {{}, {"model"}, "", "Workload", "Whose widths", "MODEL", "deepseek-v3", "", false, false, true},
      {{"o"}, {"output"}, "", "Output", "It's [a] format: x", "table|json", "table", "", false, false, false},
      {{}, {"dir"}, "", "Output", "Where to", "DIR", "", "MLA_DIR", false, false, false},
      {{"q"}, {"quiet"}, "", "Output", "Say nothing", "", "", "", false, false, false},
      {{}, {}, "file", "What", "Files", "FILE", "", "", true, true, false}};
  root.commands = {run};
  return root;
}

TEST(CommonHelp, ShortShowsWhatIsUsedMost) {
  EXPECT_EQ(help_text(sample(), false, 80),
            "mla-x: does x\n"
            "\n"
            "usage: mla-x [options] COMMAND\n"
            "\n"
            "commands:\n"
            "  run                         runs it\n"
            "\n"
            "options:\n"
            "  -h                          Show help\n"
            "\n"
            "examples:\n"
            "  mla-x run --model a\n"
            "\n"
            "more: mla-x --help\n");
  EXPECT_EQ(help_text(sample().commands[0], false, 80),
            "mla-x run: runs it\n"
            "\n"
            "usage: mla-x run [options] file...\n"
            "\n"
            "most used options:\n"
            "  --model MODEL               Whose widths [deepseek-v3]\n"
            "\n"
            "more: mla-x run --help\n");
}

TEST(CommonHelp, LongShowsGroupsDefaultsAndEnvironment) {
  const std::string text = help_text(sample(), true, 60);
  EXPECT_NE(text.find("\nWorkload:\n  --model MODEL               Whose widths [deepseek-v3]\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  --dir DIR                   Where to [env MLA_DIR]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  file                        Files (required)\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("--man"), std::string::npos) << "hidden";
  EXPECT_NE(text.find("exit codes: 0"), std::string::npos);
}

TEST(CommonHelp, WrapsAtTheWidth) {
  CommandInfo command = sample().commands[0];
  command.options[0].description = "one two three four five six seven eight nine ten eleven twelve";
  const std::string text = help_text(command, false, 60);
  EXPECT_NE(
      text.find("one two three four five six\n" + std::string(30, ' ') + "seven eight nine ten eleven\n"),
      std::string::npos)
      << text;
}

TEST(CommonCompletion, BashCompletesCommandsOptionsAndValues) {
  const std::string script = completion_script(sample(), "bash");
  const auto complete = [&](const std::string& words) {
    const std::string ask = script + "\nCOMP_WORDS=(" + words +
                            ")\nCOMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_mla_x\n" + "echo \"${COMPREPLY[*]}\"\n";
    const auto result = run_program("/bin/bash", {"-u", "-c", ask});
    EXPECT_EQ(result.err, "");
    return result.out;
  };
  EXPECT_EQ(complete("mla-x r"), "run\n");
  EXPECT_EQ(complete("mla-x run --o"), "--output\n");
  EXPECT_EQ(complete("mla-x run -o j"), "json\n");
  EXPECT_EQ(complete("mla-x run --model ''"), "\n") << "asked from a program that is not installed here";
}

TEST(CommonCompletion, EveryScriptIsSyntaxToItsShell) {
  struct Shell {
    const char* name;
    std::vector<const char*> places;
    const char* check;
  };
  const Shell shells[] = {{"bash", {"/bin/bash"}, "-n"},
                          {"zsh", {"/bin/zsh", "/usr/bin/zsh"}, "-n"},
                          {"fish", {"/usr/bin/fish", "/bin/fish"}, "--no-execute"}};
  std::string missing;
  for (const Shell& shell : shells) {
    const std::string script = completion_script(sample(), shell.name);
    EXPECT_NE(script.find("mla-x"), std::string::npos);
    const auto place = std::ranges::find_if(shell.places, [](const char* p) { return access(p, X_OK) == 0; });
    if (place == shell.places.end()) {
      missing += std::string(missing.empty() ? "" : ", ") + shell.name;
      continue;
    }
    const auto result = run_program(*place, {shell.check, "/dev/stdin"}, {.stdin_text = script});
    EXPECT_EQ(result.exit_code, 0) << shell.name << ": " << result.err;
  }
  EXPECT_THROW(static_cast<void>(completion_script(sample(), "tcsh")), mla::Error);
  if (!missing.empty()) GTEST_SKIP() << "not installed, so not asked: " << missing;
}

TEST(CommonManPage, EscapesAndListsEverything) {
  const std::string page = man_page(sample(), "1.2");
  EXPECT_TRUE(page.starts_with(".TH MLA\\-X 1 \"\" \"mla\\-x 1.2\"")) << page.substr(0, 60);
  EXPECT_NE(page.find("\\fB\\-o, \\-\\-output table|json\\fR"), std::string::npos) << page;
  EXPECT_NE(page.find(".SH EXIT STATUS"), std::string::npos);
  EXPECT_NE(page.find("Environment: MLA_DIR."), std::string::npos);
}

}  // namespace
