// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "command_tree.hpp"
#include "core/text.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "mla/plugin_host.hpp"
#include "mla/version.hpp"

namespace mla::cli {
namespace {

constexpr const char* kGeneral = "General";
constexpr int kPipeWidth = 100;  // help wrapped for a file or a pager

/// What CLI11 has no place for, by address of its objects.
struct Notes {
  std::set<const CLI::Option*> often;
  std::map<const CLI::App*, std::vector<std::string>> examples;
  std::map<const CLI::App*, std::string> exit_codes;
};
Notes& notes() {
  static Notes instance;
  return instance;
}

std::string path_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : path_of(*parent) + ' ' + app.get_name();
}

OptionInfo describe(const CLI::Option& option) {
  OptionInfo info;
  info.short_names = option.get_snames();
  info.long_names = option.get_lnames();
  if (option.get_positional()) info.positional = option.get_name(true, false);
  info.group = option.get_group();
  info.description = option.get_description();
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();  // CLI11 appends ":VALIDATOR"
    info.type = type.substr(0, type.find(':'));
  }
  info.default_text = option.get_default_str();
  info.environment = option.get_envname();
  info.required = option.get_required();
  info.repeatable = option.get_items_expected_max() > 1;
  info.often = notes().often.contains(&option);
  return info;
}

CommandInfo describe(const CLI::App& app) {
  CommandInfo info;
  info.path = path_of(app);
  info.name = app.get_name();
  info.summary = app.get_description();
  if (const auto found = notes().examples.find(&app); found != notes().examples.end())
    info.examples = found->second;
  if (const auto found = notes().exit_codes.find(&app); found != notes().exit_codes.end())
    info.exit_codes = found->second;
  for (const CLI::Option* option : app.get_options({})) info.options.push_back(describe(*option));
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (!sub->get_group().empty()) info.commands.push_back(describe(*sub));
  }
  return info;
}

class HouseFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/, CLI::AppFormatMode mode) const override {
    const report::Terminal terminal = report::inspect_terminal();
    return help_text(describe(*app), mode == CLI::AppFormatMode::All,
                     terminal.stdout_is_tty ? terminal.width : kPipeWidth);
  }
};

std::string version_text(const std::string& program) {
  const BuildInfo& build = build_info();
  return fmt::format("{} {} (git {})\ncompiler {}, {} build, CUDA {}{}\nlicence Apache-2.0\n", program,
                     build.version, build.git, build.compiler, build.build_type, build.cuda,
                     build.cuda_archs.empty() ? std::string() : fmt::format(" for {}", build.cuda_archs));
}

std::string version_json(const std::string& program) {
  const BuildInfo& build = build_info();
  report::Document document;
  document.kind = "version";
  const auto fact = [&](const char* key, std::string_view value) {
    document.facts.emplace_back(key, std::string(value));
  };
  fact("program", program);
  fact("version", build.version);
  fact("git", build.git);
  fact("compiler", build.compiler);
  fact("build_type", build.build_type);
  fact("cuda", build.cuda);
  fact("cuda_archs", build.cuda_archs);
  fact("licence", "Apache-2.0");
  return report::render(document, report::Format::kJson);
}

/// The deepest command the user named.
const CLI::App& selected(const CLI::App& app) {
  const std::vector<const CLI::App*> subs =
      app.get_subcommands([](const CLI::App* sub) { return sub->parsed(); });
  return subs.empty() ? app : selected(*subs.back());
}

std::vector<std::string> known_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options({})) {
      if (option->get_group().empty()) continue;
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

/// The first argument nobody wanted, with what it may have been meant to be.
void explain_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  const CLI::App& command = selected(app);
  const std::string see = fmt::format("see {} -h", path_of(command));
  const std::string& first = extras.front();
  if (first.size() > 1 && first.front() == '-') {
    const std::string name = first.substr(0, first.find('='));
    const std::string near = text::nearest(name, known_options(command));
    print_error(app.get_name(), fmt::format("unknown option '{}'", name),
                near.empty() ? see : fmt::format("did you mean '{}'?", near));
    return;
  }
  std::vector<std::string> commands;
  for (const CLI::App* sub : command.get_subcommands({})) {
    if (!sub->get_group().empty()) commands.push_back(sub->get_name());
  }
  if (commands.empty()) {
    print_error(app.get_name(), fmt::format("unexpected argument '{}'", first), see);
  } else {
    print_error(app.get_name(), fmt::format("unknown command '{}'", first),
                text::suggestion(first, commands));
  }
}

/// CLI11's "--gpu: At Most 1 required but received 2" and "--gpu: 1 required GPU missing" in our words.
std::string plain_words(std::string sentence) {
  constexpr std::string_view kTwice = ": At Most 1 required but received ";
  constexpr std::string_view kNone = ": 1 required ";
  constexpr std::string_view kMissing = " missing";
  if (const std::size_t at = sentence.find(kTwice); at != std::string::npos) {
    return fmt::format("{} is given {} times, but takes one value", sentence.substr(0, at),
                       sentence.substr(at + kTwice.size()));
  }
  if (const std::size_t at = sentence.find(kNone); at != std::string::npos && sentence.ends_with(kMissing)) {
    const std::size_t type = at + kNone.size();
    return fmt::format("{} needs a value: {}", sentence.substr(0, at),
                       sentence.substr(type, sentence.size() - type - kMissing.size()));
  }
  return sentence;
}

/// CLI11's "what is required" and "A subcommand is required", with what it should be.
std::string missing_words(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options({})) {
    if (!option->get_required() || option->count() > 0) continue;
    const OptionInfo info = describe(*option);
    const std::string name = info.positional.empty() ? "--" + info.long_names.front() : info.positional;
    const bool choice = info.type.find('|') != std::string::npos;
    return fmt::format("{} is missing: {}", text::quoted(name), choice ? info.type : info.description);
  }
  std::vector<std::string> commands;
  for (const CommandInfo& sub : describe(command).commands) commands.push_back(sub.name);
  return fmt::format("a command is missing: {}", text::join_or(commands));
}

void explain(const CLI::App& app, const CLI::ParseError& error) {
  if (const std::vector<std::string> extras = app.remaining(true); !extras.empty())
    return explain_extras(app, extras);
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  std::string sentence = missing ? missing_words(selected(app)) : error.what();
  std::ranges::replace(sentence, '\n', ' ');
  std::string see = fmt::format("see {} -h", path_of(selected(app)));
  print_error(app.get_name(), plain_words(sentence), see);
}

/// Requests that answer before anything else is checked: the leading options of the command line only.
std::optional<std::string> early_answer(const CLI::App& app, int argc, char** argv) {
  const auto next = [&](int i) { return i + 1 < argc ? std::string(argv[i + 1]) : std::string(); };
  bool version = false;
  bool json = false;
  for (int i = 1; i < argc && argv[i][0] == '-'; ++i) {
    const std::string_view word = argv[i];
    if (word == "--man") return man_page(describe(app), build_info().version);
    if (word == "--completion") return completion_script(describe(app), next(i));
    version = version || word == "--version";
    json = json || word == "--json";
  }
  if (!version) return std::nullopt;
  return json ? version_json(app.get_name()) : version_text(app.get_name());
}

}  // namespace

void setup_root(CLI::App& app, const std::string& summary, const std::vector<std::string>& examples) {
  app.description(summary);
  app.formatter(std::make_shared<HouseFormatter>());
  app.fallthrough();  // --config-dir may stand behind the command too
  app.set_help_flag("-h", "Show the options used most and examples")->group(kGeneral);
  app.set_help_all_flag("--help", "Show everything")->group(kGeneral);
  app.set_version_flag(
         "--version", [&app] { return version_text(app.get_name()); },
         "Show the version (with --json: as JSON)")
      ->group(kGeneral);
  app.add_option_function<std::string>(
         "--config-dir",
         [](const std::string& dir) {
           if (!std::filesystem::is_directory(dir)) {
             throw Error(ErrorCode::kIo, fmt::format("--config-dir '{}' is not a folder", dir),
                         "it should hold models/, gpus/ and sweeps/");
           }
           set_config_dir(dir);
         },
         "Folder searched first for models, GPUs and sweeps")
      ->type_name("DIR")
      ->envname("MLA_CONFIG_DIR")
      ->group(kGeneral);
  app.add_option("--completion")->type_name("bash|zsh|fish")->group("");
  app.add_flag("--man")->group("");
  set_examples(app, examples);
}

void set_examples(const CLI::App& command, std::vector<std::string> examples) {
  notes().examples[&command] = std::move(examples);
}

void set_exit_codes(const CLI::App& command, std::string codes) {
  notes().exit_codes[&command] = std::move(codes);
}

CLI::Option* often(CLI::Option* option) {
  notes().often.insert(option);
  return option;
}

void add_output_options(CLI::App& app, Output& output) {
  const char* group = "Output";
  often(app.add_option_function<std::string>(
               "-o,--output",
               [&output](const std::string& text) { output.format = report::parse_format(text); },
               "Format of what goes to stdout")
            ->type_name("table|json|csv|md|html")
            ->default_str("table")
            ->group(group));
  app.add_option_function<std::string>(
         "--color",
         [&output](const std::string& text) {
           if (text == "auto") {
             output.color = report::ColorMode::kAuto;
           } else if (text == "always") {
             output.color = report::ColorMode::kAlways;
           } else if (text == "never") {
             output.color = report::ColorMode::kNever;
           } else {
             throw Error(ErrorCode::kInvalidArgument, fmt::format("--color '{}' is not known", text),
                         "allowed are auto, always and never");
           }
         },
         "Colour on the terminal")
      ->type_name("auto|always|never")
      ->default_str("auto")
      ->group(group);
  app.add_flag("-q,--quiet", output.quiet, "No progress line")->group(group);
}

void add_plugin_option(CLI::App& app) {
  app.add_option_function<std::vector<std::string>>(
         "--plugin",
         [](const std::vector<std::string>& files) {
           for (const std::string& file : files) static_cast<void>(load_plugin(file));
         },
         "Add the backend of a shared object that speaks mla/plugin.h; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group("Backends");
}

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  if (const std::optional<std::string> answer = early_answer(app, argc, argv)) {
    write_stdout(*answer);
    return kOk;
  }
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForAllHelp&) {
    write_stdout(app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
  } catch (const CLI::CallForVersion&) {
    write_stdout(version_text(app.get_name()));
  } catch (const CLI::ParseError& error) {
    explain(app, error);
    return kUsage;
  }
  return kOk;
}

}  // namespace mla::cli
